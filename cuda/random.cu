// Random tensors.
//
// out[i] = draw i of the key's sequence, whatever the launch: a thread takes one Philox block,
// which is four draws. Uniforms have the CPU's bits, also in bf16, where they are cut off, not
// rounded, to stay below 1; normals agree to the rounding of log, sin and cos.
#include "cuda/common.cuh"
#include "cuda/random.h"

namespace stretto::cuda {
namespace {

constexpr int threads = 256;

struct Bits {
  using type = uint32_t;
  __device__ static void four(const Random4& r, uint32_t* to) {
    for (int j = 0; j < 4; ++j) to[j] = r.v[j];
  }
};
struct Uniform {
  using type = float;
  __device__ static void four(const Random4& r, float* to) {
    for (int j = 0; j < 4; ++j) to[j] = uniform_from_bits(r.v[j]);
  }
};
struct Normal {
  using type = float;
  __device__ static void four(const Random4& r, float* to) {
    normals_from_bits(r.v[0], r.v[1], to[0], to[1]);
    normals_from_bits(r.v[2], r.v[3], to[2], to[3]);
  }
};

/// out [n]
template <class Draw, class T>
__global__ void draw(T* out, RandomKey key, int64_t n) {
  for (int64_t block = thread_index(); block * 4 < n; block += thread_count()) {
    typename Draw::type value[4];
    Draw::four(philox(key, uint64_t(block)), value);
    for (int j = 0; j < 4 && block * 4 + j < n; ++j) {
      if constexpr (std::is_same_v<Draw, Uniform> &&
                    std::is_same_v<T, BFloat16>)  // cut off: never 1
        value[j] = __uint_as_float(__float_as_uint(value[j]) & 0xffff0000u);
      out[block * 4 + j] = cast<T>(value[j]);
    }
  }
}

template <class Draw>
void fill_with(const char* name, const Tensor& out, RandomKey key) {
  if (out.numel() == 0) return;
  dispatch_floating(out.dtype(), name, [&](auto tag) {
    using T = typename decltype(tag)::type;
    launch(name, out.device().index, draw<Draw, T>, blocks_for(out.numel(), 4 * threads), threads,
           out.data<T>(), key, out.numel());
  });
}

}  // namespace

void fill_uniform(const Tensor& out, RandomKey key) { fill_with<Uniform>("rand", out, key); }
void fill_normal(const Tensor& out, RandomKey key) { fill_with<Normal>("randn", out, key); }

void device_philox(RandomKey key, int64_t n, uint32_t* host_out, Device device) {
  if (n == 0) return;
  const Storage bits(n * 4, device);
  launch("device_philox", device.index, draw<Bits, uint32_t>, blocks_for(n, 4 * threads), threads,
         static_cast<uint32_t*>(bits.data), key, n);
  copy_bytes(host_out, cpu, bits.data, device, n * 4);
}

}  // namespace stretto::cuda
