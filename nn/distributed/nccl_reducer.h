// All-reduce of GPU tensors over processes with NCCL.
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

/// Reduce-scatter and all-gather on a GPU. NCCL only transfers; the sums are added along the tree
/// of ProcessGroup::all_reduce and are bit-identical to its sums. The work runs on a separate
/// stream, concurrently with the computation.
class NcclReducer {
 public:
  /// Returns null on all processes if NCCL is unavailable on one of them; rank 0 prints why.
  /// Collective.
  static std::unique_ptr<NcclReducer> open(ProcessGroup& group, Device device);
  ~NcclReducer();

  /// Queues a reduce-scatter, as ProcessGroup::reduce_scatter, in place. `values` [n] is f32 or
  /// f64, contiguous on the device, and must live until finish(). Collective, in the same order.
  void reduce_scatter(const Tensor& values, const std::vector<int64_t>& ends);
  /// Queues an all-gather of the chunks. Unlike in ProcessGroup, `ends` counts elements.
  void all_gather_chunks(const Tensor& values, const std::vector<int64_t>& ends);
  /// Waits for all queued work. If a process does not respond, the run ends as in
  /// ProcessGroup::send_recv; if NCCL fails, throws Error with its message.
  void finish();

  /// Returns the number of bytes that this process has sent.
  int64_t bytes() const { return bytes_; }
  /// Returns the seconds from the first queued operation to finish(), summed over all such spans.
  double seconds() const { return seconds_; }

 private:
  NcclReducer(ProcessGroup& group, std::unique_ptr<cuda::Channel> channel);
  void begin(const Tensor& values);
  void send_recv(int peer, const void* out, int64_t n_out, void* in, int64_t n_in);

  ProcessGroup& group_;
  std::unique_ptr<cuda::Channel> channel_;
  Tensor received_;  // buffer for values to be added, u8
  int64_t bytes_ = 0;
  double begin_ = 0, seconds_ = 0;  // begin_: 0 while nothing is queued
};

}  // namespace stretto::nn
