// A captured step on the side of the kernels: what they read anew in each replay. The host's side
// is in core/gpu_runtime.h.
#pragma once

#include <cstdint>
#include <functional>

#include "../../core/random.h"
#include "runtime.h"

namespace stretto::cuda {

/// Inside a capture: `bytes` of the device's memory, 16-aligned, which fill(host) writes before
/// each replay, for numbers that change from step to step. Null elsewhere: the kernel's arguments
/// count. What `fill` refers to must live as long as the graph.
void* refilled_on_replay(int device, int64_t bytes, std::function<void(void* host)> fill);

/// A key as kernels take it: in a replay its stream is as many streams later as the program has
/// given away since.
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

/// While any thread captures a step on the device: true, and the block is freed when that has
/// ended.
bool free_later(void* block, int device);

/// Throws, naming `what`, inside a capture: for what a replay could not repeat.
void refuse_in_capture(const char* what, int device);

}  // namespace stretto::cuda
