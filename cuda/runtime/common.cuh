// What all kernels share: launches, conversions, reductions within a warp or block.
//
// Copies, gathers, sorts and random numbers are grid-stride loops over 64-bit indices. Elementwise
// functions (map.cuh) have 32-bit indices and split large launches. Kernels of rows, tiles and
// heads have a block for each, or for several in turn. No launch has an empty grid. No atomics.
#pragma once

#include <cuda_runtime.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "core/tensor.h"
#include "cuda/runtime/index.h"
#include "cuda/runtime/runtime.h"

namespace stretto::cuda {

/// Streaming multiprocessors that launches are planned for, an H100's. One number for every GPU, so
/// that sums have the same order on each.
constexpr int planned_sms = 132;

/// Queues kernel(args...) on the device's stream, with so many bytes of dynamic shared memory.
/// `op`, a literal, stands in the error.
template <class... Params, class... Args>
void launch_with_shared(const char* op, int device, void (*kernel)(Params...), dim3 grid,
                        dim3 block, int64_t shared, Args&&... args) {
  cudaLaunchConfig_t config = {};
  config.gridDim = grid;
  config.blockDim = block;
  config.dynamicSmemBytes = size_t(shared);
  config.stream = stream(device);
  if (shared > 48 << 10)  // more than a kernel has without being asked for
    allow_shared_memory(op, device, reinterpret_cast<const void*>(kernel), shared);
  check_call(cudaLaunchKernelEx(&config, kernel, std::forward<Args>(args)...), op);
  queued(op, device);
}

/// The same without.
template <class... Params, class... Args>
void launch(const char* op, int device, void (*kernel)(Params...), dim3 grid, dim3 block,
            Args&&... args) {
  launch_with_shared(op, device, kernel, grid, block, 0, std::forward<Args>(args)...);
}

/// Blocks for `items` of which each block takes `per_block` at a time: enough to fill any GPU, the
/// rest is the loops' work.
inline unsigned blocks_for(int64_t items, int64_t per_block) {
  return unsigned(std::min<int64_t>(ceil_div(items, per_block), 4096));
}

__device__ inline int64_t thread_index() { return int64_t(blockIdx.x) * blockDim.x + threadIdx.x; }
__device__ inline int64_t thread_count() { return int64_t(gridDim.x) * blockDim.x; }

/// As an f32: what that has not exactly is rounded to odd, from where a second rounding goes to the
/// nearest (BFloat16 in core/dtype.h).
template <class From>
__device__ inline float to_odd(From from) {
  if constexpr (std::is_same_v<From, double> || (std::is_integral_v<From> && sizeof(From) > 2)) {
    float cut;
    if constexpr (std::is_same_v<From, double>)
      cut = __double2float_rz(from);
    else if constexpr (sizeof(From) == 8)
      cut = __ll2float_rz(from);
    else
      cut = __int2float_rz(from);
    return From(cut) == from ? cut : __uint_as_float(__float_as_uint(cut) | 1u);
  } else {
    return float(from);
  }
}

/// static_cast<To>(from), for every pair of element types, on the device. bf16 rounds to nearest
/// even and keeps NaN, as BFloat16 does, but not which.
template <class To, class From>
__device__ inline To cast(From from) {
  if constexpr (std::is_same_v<To, From>) {
    return from;
  } else if constexpr (std::is_same_v<From, BFloat16>) {
    return cast<To>(__uint_as_float(uint32_t(from.bits) << 16));
  } else if constexpr (std::is_same_v<To, BFloat16>) {
    To to;
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(to.bits) : "f"(to_odd(from)));
    return to;
  } else {
    return static_cast<To>(from);
  }
}

/// Calls f with the unsigned integer of the dtype's size: what moves bits needs no other type.
template <class F>
void dispatch_word(DType t, F&& f) {
  switch (item_size(t)) {
    case 1:
      return f.template operator()<uint8_t>();
    case 2:
      return f.template operator()<uint16_t>();
    case 4:
      return f.template operator()<uint32_t>();
    default:
      return f.template operator()<uint64_t>();
  }
}

/// Calls f with the C++ type of f32, f64 or bf16, or of i64 where integers are served too.
template <bool integers = true, class F>
void dispatch_number(DType t, const char* name, F&& f) {
  if constexpr (integers) {
    if (t == i64) return f.template operator()<int64_t>();
  }
  dispatch_floating(t, name, std::forward<F>(f));
}

struct Sum {
  template <class C>
  __device__ C operator()(C a, C b) const {
    return a + b;
  }
};
struct Max {  // NaN wins
  template <class C>
  __device__ C operator()(C a, C b) const {
    return a > b || a != a ? a : b;
  }
};

/// A value of each warp of the block.
template <int Threads, class C>
__device__ inline C* warp_values() {
  __shared__ C values[Threads / 32];
  return values;
}

/// The values of `Threads` neighboring threads (32: a warp; more: the block, which has no others)
/// combined; all of them get the result, with the same bits. All threads must take part.
template <int Threads, class C, class Op>
__device__ inline C combine(C value, Op op) {
  for (int lane = 16; lane > 0; lane /= 2)
    value = op(value, __shfl_xor_sync(0xffffffffu, value, lane));
  if constexpr (Threads > 32) {
    C* const warps = warp_values<Threads, C>();
    __syncthreads();  // the values of the last call have been read
    if (threadIdx.x % 32 == 0) warps[threadIdx.x / 32] = value;
    __syncthreads();
    value = warps[0];
    for (int w = 1; w < Threads / 32; ++w) value = op(value, warps[w]);
  }
  return value;
}

/// v_i of all lanes summed, for i the lane.
template <int half = 16>
__device__ inline float sum_across(float (&v)[32]) {
  const bool upper = (threadIdx.x & half) != 0;
#pragma unroll
  for (int i = 0; i < half; ++i) {
    const float mine = upper ? v[i + half] : v[i], other = upper ? v[i] : v[i + half];
    v[i] = mine + __shfl_xor_sync(0xffffffffu, other, half);
  }
  if constexpr (half > 1) return sum_across<half / 2>(v);
  return v[0];
}

/// V numbers that are moved by one instruction where they are at most 16 bytes, as they mostly are.
template <class T, int V>
struct alignas(sizeof(T) * V < 16 ? sizeof(T) * V : 16) Pack {
  T v[V];
};
template <class T>
constexpr int pack_size = 16 / int(sizeof(T));
inline bool aligned(const void* p) { return reinterpret_cast<uintptr_t>(p) % 16 == 0; }

/// Threads that share a row, and rows per block: a warp serves a short row, a block a long one.
template <int Threads>
inline dim3 row_block() {
  return dim3(Threads, Threads == 32 ? 8 : 1);
}
__device__ inline int64_t first_row() { return int64_t(blockIdx.x) * blockDim.y + threadIdx.y; }
__device__ inline int64_t row_step() { return int64_t(gridDim.x) * blockDim.y; }

}  // namespace stretto::cuda
