// Random tensors and dropout.
//
// out[i] is random number i of the key's sequence, independent of the launch: a thread computes
// one Philox block of four random numbers, or two blocks for bf16, and stores 16 bytes (32 for
// f64) at once if out is aligned. Bit-identical to the CPU's: compiled without fused
// multiply-adds (cuda/runtime/unfused.h), and bf16 uniforms are truncated, not rounded, to stay
// below 1. Tested against the CPU.
#include "cuda/random.h"
#include "cuda/runtime/draws.cuh"
#include "cuda/runtime/unfused.h"

namespace stretto::cuda {
namespace {

constexpr int threads = 256;

struct Uniform {
  __device__ static void four(const Random4& r, float* to) {
    for (int j = 0; j < 4; ++j) to[j] = uniform_from_bits(r.v[j]);
  }
};
struct Normal {
  __device__ static void four(const Random4& r, float* to) {
    normals_from_bits(r.v[0], r.v[1], to[0], to[1]);
    normals_from_bits(r.v[2], r.v[3], to[2], to[3]);
  }
};

/// out [n]; `packs` if it is aligned to 16 bytes
template <class Draw, class T>
__global__ void draw(T* out, DrawKey given, uint64_t n, bool packs) {
  const RandomKey key = key_now(given);
  constexpr int V = at_once<T>;
#pragma unroll 1
  for (uint64_t group = thread_index(); group * V < n; group += thread_count()) {
    Group<T> y;
#pragma unroll
    for (int b = 0; b < V; b += 4) {
      float value[4];
      Draw::four(philox(key, group * (V / 4) + b / 4), value);
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        if constexpr (std::is_same_v<Draw, Uniform> && std::is_same_v<T, BFloat16>)
          value[j] = __uint_as_float(__float_as_uint(value[j]) & 0xffff0000u);  // never 1
        y.v[b + j] = cast<T>(value[j]);
      }
    }
    T* const to = out + group * V;
    if (packs && group * V + V <= n) {
      *reinterpret_cast<Group<T>*>(to) = y;
    } else {
#pragma unroll
      for (int j = 0; j < V; ++j)
        if (group * V + j < n) to[j] = y.v[j];
    }
  }
}

/// out [n] = x [n] with dropout, plus the residual [n]
template <bool Residual, class T>
__global__ void drop(T* out, const T* x, const T* residual, Drop<compute_t<T>> rule, uint64_t n,
                     bool packs) {
  using C = compute_t<T>;
  constexpr int V = at_once<T>;
#pragma unroll 1
  for (uint64_t group = thread_index(); group * V < n; group += thread_count()) {
    const GroupAt<T> at{group * V, n, packs};
    const Group<T> in = at.load(x);
    Group<T> onto;
    if constexpr (Residual) onto = at.load(residual);
    C y[V];
#pragma unroll
    for (int j = 0; j < V; ++j) y[j] = cast<C>(in.v[j]);
    drop_group(y, rule, group);
    if constexpr (Residual) {
#pragma unroll
      for (int j = 0; j < V; ++j) y[j] += cast<C>(onto.v[j]);
    }
    at.store(out, y);
  }
}

/// out [n]: low + integers below `range`, from two random numbers each
__global__ void whole_numbers(int64_t* out, DrawKey given, uint64_t low, uint64_t range,
                              uint64_t n) {
  const RandomKey key = key_now(given);
#pragma unroll 1
  for (uint64_t pair = thread_index(); pair * 2 < n; pair += thread_count()) {
    const Random4 r = philox(key, pair);
    const Pack<int64_t, 2> y = {int64_t(low + below_from_bits(range, r.v[0], r.v[1])),
                                int64_t(low + below_from_bits(range, r.v[2], r.v[3]))};
    if (pair * 2 + 1 < n) {
      *reinterpret_cast<Pack<int64_t, 2>*>(out + pair * 2) = y;
    } else {
      out[pair * 2] = y.v[0];
    }
  }
}

template <class Draw>
void fill_with(const char* name, const Tensor& out, RandomKey key) {
  if (out.numel() == 0) return;
  dispatch_floating(out.dtype(), name, [&]<class T>() {
    launch(name, out.device().index, draw<Draw, T>, blocks_for(out.numel(), 4 * threads), threads,
           out.data<T>(), draw_key(key, out.device().index), uint64_t(out.numel()),
           aligned(out.raw_data()));
  });
}

}  // namespace

void fill_uniform(const Tensor& out, RandomKey key) { fill_with<Uniform>("rand", out, key); }
void fill_normal(const Tensor& out, RandomKey key) { fill_with<Normal>("randn", out, key); }

Tensor dropout(const Tensor& x, uint32_t below, double scale, RandomKey key,
               const Tensor& residual) {
  Tensor out = empty_like(x);
  if (x.numel() == 0) return out;
  dispatch_floating(x.dtype(), "dropout", [&]<class T>() {
    const T* const onto = data_or_null<T>(residual);
    launch("dropout", x.device().index, onto ? drop<true, T> : drop<false, T>,
           blocks_for(x.numel(), 4 * threads), threads, out.data<T>(),
           static_cast<const T*>(x.data<T>()), onto,
           Drop<compute_t<T>>{draw_key(key, x.device().index), below, compute_t<T>(scale)},
           uint64_t(x.numel()),
           aligned(x.raw_data()) && aligned(out.raw_data()) && (!onto || aligned(onto)));
  });
  return out;
}

Tensor randint(const Shape& shape, int64_t low, uint64_t range, RandomKey key, Device device) {
  Tensor out = empty(shape, {.dtype = i64, .device = device});
  if (out.numel() == 0) return out;
  launch("randint", device.index, whole_numbers, blocks_for(out.numel(), 2 * threads), threads,
         out.data<int64_t>(), draw_key(key, device.index), uint64_t(low), range,
         uint64_t(out.numel()));
  return out;
}

}  // namespace stretto::cuda
