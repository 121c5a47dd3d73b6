// Step capture as kernels see it: the values that they read again in each replay. The host's
// interface is in core/gpu_runtime.h.
#pragma once

#include <cstdint>
#include <functional>

#include "../../core/random.h"
#include "runtime.h"

namespace stretto::cuda {

/// During a capture, returns `bytes` of device memory, 16-byte aligned, which fill(host) writes
/// before each replay: for values that change from step to step. Otherwise returns null, and the
/// kernel uses its arguments. What `fill` refers to must live as long as the graph.
void* refilled_on_replay(int device, int64_t bytes, std::function<void(void* host)> fill);

/// A random key as kernels receive it. In a replay its stream is increased by *later, the
/// number of streams that the program has handed out since the capture, so that each replay
/// has new random numbers.
struct DrawKey {
  RandomKey key;
  const uint64_t* later = nullptr;
};
DrawKey draw_key(RandomKey key, int device);

#ifdef __CUDACC__
__device__ inline RandomKey key_now(const DrawKey& k) {
  return {k.key.seed, k.key.stream + (k.later ? *k.later : 0)};
}
#endif

/// While any thread captures a step on the device, returns true and frees the block when
/// the capture has ended.
bool free_later(void* block, int device);

/// Throws an error that names `what` during a capture: for operations that a
/// replay could not repeat.
void refuse_in_capture(const char* what, int device);

}  // namespace stretto::cuda
