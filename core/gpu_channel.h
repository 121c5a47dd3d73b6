// Messages between the GPUs of several processes, as the rest of the library sees them: no CUDA
// header. cuda/runtime/nccl.cu implements them by NCCL, whose library is opened at run time
// (libnccl.so.2, or what STRETTO_NCCL names); cuda/none.cpp has none.
#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include "dtype.h"

namespace stretto::cuda {

/// A queue of messages beside a device's stream. Nothing here waits for another process but the
/// opening and, as NCCL connects two processes when they first meet, the first message to or from
/// each; where NCCL complains, Error has its words.
class Channel {
 public:
  virtual ~Channel() = default;
  Channel(const Channel&) = delete;
  Channel& operator=(const Channel&) = delete;

  /// What is queued here from now on comes after what is on the device's stream now ...
  virtual void follow() = 0;
  /// ... and what is queued there from now on after what is here.
  virtual void lead() = 0;
  /// Sends bytes of the device to a process, which makes the same call the other way round, and
  /// receives its.
  virtual void send_recv(int peer, const void* out, size_t n_out, void* in, size_t n_in) = 0;
  /// to += from, n numbers of f32 or f64.
  virtual void add(DType type, void* to, const void* from, int64_t n) = 0;
  /// Whether all that was queued is done.
  virtual bool done() = 0;

 protected:
  Channel() = default;
};

/// Why no channel can be opened here, or nothing.
std::string channel_missing();
/// What one process gives to all, so that they meet.
std::string channel_id();
/// All processes of `id` call it, each with a device that no other has.
std::unique_ptr<Channel> open_channel(const std::string& id, int rank, int size, int device);

}  // namespace stretto::cuda
