// The CUDA runtime on the host's side: checked calls, a device's stream, error messages that name
// ops.
//
// Policy: each device has one stream, which does not wait for the legacy default stream (work of
// other libraries there is independent, and steps can be captured). Everything on a device runs in
// the order in which it was queued, so that the allocator may reuse a freed block at once.
#pragma once

#include <cuda_runtime_api.h>

#include "../../core/error.h"

namespace stretto::cuda {

/// Throws an Error with the call and the runtime's message. After a kernel's fault, which any later
/// call may report, it lists the ops queued last.
[[noreturn]] void fail_call(const char* call, cudaError_t error);
inline void check_call(cudaError_t error, const char* call) {
  if (error != cudaSuccess) [[unlikely]]
    fail_call(call, error);
}
#define STRETTO_CUDA(call) ::stretto::cuda::check_call(call, #call)

/// Bytes of shared memory that a block may use: 227 KB on GPUs of compute capability 9
/// and 10, 99 KB on 12.
int64_t shared_memory(int device);
constexpr int64_t most_shared_memory = 227 << 10;  // the most that any kernel uses
/// Raises the kernel's limit on the device to `bytes` of dynamic shared memory. Never lowers it:
/// other threads may be about to launch it.
void allow_shared_memory(const char* op, int device, const void* kernel, int64_t bytes);

/// Makes the device the calling thread's current one.
inline void use(int device) { STRETTO_CUDA(cudaSetDevice(device)); }

/// The device's stream, created at its first use. Makes the device current. Throws while another
/// thread captures a step on the device: work queued now would become part of that capture. A
/// thread that got the stream just before the capture began is not noticed, hence the rule that a
/// capture needs exclusive access to the device. Not to be stored: each use asks again.
cudaStream_t stream(int device);
/// Reserves the stream for the calling thread, or releases it.
void own_stream(int device);
void share_stream(int device) noexcept;

/// Records the name of an op, a string literal, that has been queued on the device's stream. With
/// STRETTO_CUDA_SYNC=1 in the environment, waits for the op, so that a fault names it.
void queued(const char* op, int device);

}  // namespace stretto::cuda
