// The CUDA runtime on the host's side: checked calls, the stream of a device, names for faults.
//
// Policy: one stream per device, which waits for no other (work of other libraries on the legacy
// default stream goes its own way, and steps can be captured). Everything on a device runs in the
// order it was asked for; that is what lets the allocator hand a freed block out again at once.
#pragma once

#include <cuda_runtime_api.h>

#include "../../core/error.h"

namespace stretto::cuda {

/// Throws Error naming the call and the runtime's words for the error; after a fault of a kernel,
/// which any later call may report, with the ops that were queued last.
[[noreturn]] void fail_call(const char* call, cudaError_t error);
inline void check_call(cudaError_t error, const char* call) {
  if (error != cudaSuccess) [[unlikely]]
    fail_call(call, error);
}
#define STRETTO_CUDA(call) ::stretto::cuda::check_call(call, #call)

/// Bytes of shared memory that a block may have: 227 KB on GPUs of compute capability 9 and 10,
/// 99 KB on those of 12.
int64_t shared_memory(int device);
constexpr int64_t most_shared_memory = 227 << 10;  // that any kernel takes
/// Lets the kernel have so many bytes of dynamic shared memory on the device, and not fewer than
/// before: other threads may be about to launch it.
void allow_shared_memory(const char* op, int device, const void* kernel, int64_t bytes);

/// Makes the device the calling thread's current one.
inline void use(int device) { STRETTO_CUDA(cudaSetDevice(device)); }

/// The device's stream, made at its first use and kept. Makes the device current. Throws while
/// another thread captures a step there, of which this one's work would become a part.
cudaStream_t stream(int device);
/// Gives the stream to this thread alone, and back to all.
void own_stream(int device);
void share_stream(int device) noexcept;

/// Keeps the name of an op, a literal, that has been queued on the device's stream. With
/// STRETTO_CUDA_SYNC=1 in the environment it waits for it, so that a fault names its op.
void queued(const char* op, int device);

}  // namespace stretto::cuda
