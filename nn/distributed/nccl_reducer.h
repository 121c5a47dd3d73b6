// Sums of a GPU's numbers over processes, from GPU to GPU.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "../../core/tensor.h"
#include "process_group.h"

namespace stretto::cuda {
class Channel;
}

namespace stretto::nn {

/// The sums of ProcessGroup, by the same tree and so with the same bits, sent by NCCL on a stream
/// of its own while the device computes.
class NcclReducer {
 public:
  /// Null where NCCL cannot serve the group, of which the first process says why; all processes of
  /// the group call it, and get the same answer.
  static std::unique_ptr<NcclReducer> open(ProcessGroup& group, Device device);
  ~NcclReducer();

  /// Queues the two halves of a sum, in place of numbers [n], f32 or f64, contiguous on the device:
  /// first a process has the sums of its piece of those that end at `ends`, then all have all. The
  /// numbers must live until finish(), and all processes make the same calls in one order.
  void reduce_scatter(const Tensor& numbers, const std::vector<int64_t>& ends);
  void all_gather_chunks(const Tensor& numbers, const std::vector<int64_t>& ends);
  /// Waits for all sums. Where a process does not answer, or NCCL fails, the run ends as in
  /// ProcessGroup::send_recv, or Error says what NCCL says.
  void finish();

  /// Bytes that this process has sent.
  int64_t bytes() const { return bytes_; }
  /// From the first sum to the end of the last one, summed over all calls of finish().
  double seconds() const { return seconds_; }

 private:
  NcclReducer(ProcessGroup& group, std::unique_ptr<cuda::Channel> channel);
  void begin(const Tensor& numbers);
  void trade(int peer, const void* out, int64_t n_out, void* in, int64_t n_in);

  ProcessGroup& group_;
  std::unique_ptr<cuda::Channel> channel_;
  Tensor theirs_;  // what is received to be added
  int64_t bytes_ = 0;
  double begin_ = 0, seconds_ = 0;  // begin_: 0 while nothing is queued
};

}  // namespace stretto::nn
