// Messages between the GPUs of several processes, without a CUDA header. Implemented with NCCL in
// cuda/runtime/nccl.cu, which loads the library at run time (libnccl.so.2, or the path in
// STRETTO_NCCL); not available in a build without CUDA (cuda/none.cpp).
#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include "dtype.h"

namespace stretto::cuda {

/// A queue of messages, separate from the device's stream. Calls return without waiting for other
/// processes, except open_channel() and the first message between two processes, for which NCCL
/// connects them: at most for the channel's time limit. Errors contain NCCL's message.
class Channel {
 public:
  virtual ~Channel() = default;
  Channel(const Channel&) = delete;
  Channel& operator=(const Channel&) = delete;

  /// Makes later work of this channel wait for the work that is now on the device's stream.
  virtual void follow() = 0;
  /// Makes later work of the device's stream wait for the work that is now in this channel.
  virtual void lead() = 0;
  /// Sends n_out bytes of device memory to process `peer` and receives n_in bytes from it. The peer
  /// makes the matching call.
  virtual void send_recv(int peer, const void* out, size_t n_out, void* in, size_t n_in) = 0;
  /// Computes to += from, n elements of f32 or f64.
  virtual void add(DType type, void* to, const void* from, int64_t n) = 0;
  /// True if all queued work is done.
  virtual bool done() = 0;

 protected:
  Channel() = default;
};

/// Returns why no channel can be opened, or "" if one can.
std::string channel_missing();
/// Returns a new id, which one process sends to all others so that they open the same channel.
std::string channel_id();
/// Opens a channel between `size` processes. Collective: all processes of `id` call it, each with a
/// device that no other process uses. Throws Error if some do not call it within `seconds`.
std::unique_ptr<Channel> open_channel(const std::string& id, int rank, int size, int device,
                                      int seconds);

}  // namespace stretto::cuda
