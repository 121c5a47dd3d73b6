// Each thread of the cuRAND kernel starts its own state inside the sequence, at positions that are
// not multiples of four.
#include "tests/cuda/philox.h"

#define QUALIFIERS static __forceinline__ __host__ __device__
#include <curand_kernel.h>

#include "cuda/runtime/common.cuh"

namespace stretto::testing {
namespace {

constexpr int threads = 128;
constexpr int64_t draws_per_state = 7;  // not a multiple of four

/// out [n]: writes elements first … first + draws_per_state − 1 of the sequence
__host__ __device__ void curand_range(uint32_t* out, RandomKey key, int64_t first, int64_t n) {
  curandStatePhilox4_32_10_t state;
  curand_init(key.seed, key.stream, uint64_t(first), &state);
  for (int64_t i = first; i < first + draws_per_state && i < n; ++i) out[i] = curand(&state);
}

__global__ void curand_bits(uint32_t* out, RandomKey key, int64_t n) {
  for (int64_t first = cuda::thread_index() * draws_per_state; first < n;
       first += cuda::thread_count() * draws_per_state)
    curand_range(out, key, first, n);
}

__global__ void philox_bits(uint32_t* out, RandomKey key, int64_t n) {
  for (int64_t i = cuda::thread_index(); i < n; i += cuda::thread_count())
    out[i] = random_bits(key, uint64_t(i));
}

void run(const char* name, void (*kernel)(uint32_t*, RandomKey, int64_t), RandomKey key, int64_t n,
         uint32_t* host_out, Device device) {
  if (n == 0) return;
  const Storage bits(n * 4, device);
  cuda::launch(name, device.index, kernel, cuda::blocks_for(n, threads * draws_per_state), threads,
               static_cast<uint32_t*>(bits.data), key, n);
  copy_bytes(host_out, cpu, bits.data, device, n * 4);
}

}  // namespace

void curand_philox(RandomKey key, int64_t n, uint32_t* host_out, Device device) {
  if (device.is_cuda()) return run("curand_philox", curand_bits, key, n, host_out, device);
  for (int64_t first = 0; first < n; first += draws_per_state)
    curand_range(host_out, key, first, n);
}

void device_philox(RandomKey key, int64_t n, uint32_t* host_out, Device device) {
  run("device_philox", philox_bits, key, n, host_out, device);
}

}  // namespace stretto::testing
