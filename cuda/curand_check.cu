// cuRAND's own Philox, for the tests: our philox() must give the same bits. Each thread starts its
// own state in the middle of the sequence, at places that are no multiple of four. cuRAND's device
// header serves the host as well, so the check needs no GPU.
#define QUALIFIERS static __forceinline__ __host__ __device__
#include <curand_kernel.h>

#include "cuda/common.cuh"
#include "cuda/random.h"

namespace stretto::cuda {
namespace {

constexpr int threads = 128;
constexpr int64_t draws = 7;  // per state

/// out [n]: draws first … first + draws − 1
__host__ __device__ void some_bits(uint32_t* out, RandomKey key, int64_t first, int64_t n) {
  curandStatePhilox4_32_10_t state;
  curand_init(key.seed, key.stream, uint64_t(first), &state);
  for (int64_t i = first; i < first + draws && i < n; ++i) out[i] = curand(&state);
}

__global__ void curand_bits(uint32_t* out, RandomKey key, int64_t n) {
  for (int64_t first = thread_index() * draws; first < n; first += thread_count() * draws)
    some_bits(out, key, first, n);
}

}  // namespace

void curand_philox(RandomKey key, int64_t n, uint32_t* host_out, Device device) {
  if (device.is_cpu()) {
    for (int64_t first = 0; first < n; first += draws) some_bits(host_out, key, first, n);
    return;
  }
  if (n == 0) return;
  const Storage bits(n * 4, device);
  launch("curand_philox", device.index, curand_bits, blocks_for(n, threads * draws), threads,
         static_cast<uint32_t*>(bits.data), key, n);
  copy_bytes(host_out, cpu, bits.data, device, n * 4);
}

}  // namespace stretto::cuda
