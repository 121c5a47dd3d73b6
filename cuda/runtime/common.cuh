// Shared by all kernels: launches, conversions, and reductions within a warp or block.
//
// Copies, gathers, sorts and random numbers are grid-stride loops over 64-bit indices.
// Elementwise functions (map.cuh) have 32-bit indices and split large launches. Kernels for
// rows, tiles and heads have one block per row, tile or head, or one for several in turn. No
// grid is empty. No atomics.
#pragma once

#include <cuda_runtime.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "core/tensor.h"
#include "cuda/runtime/index.h"
#include "cuda/runtime/runtime.h"

namespace stretto::cuda {

/// The number of streaming multiprocessors that launches are planned for: that of an H100. It is
/// the same for every GPU, so that the order of additions is too.
constexpr int planned_sms = 132;

/// Queues kernel(args...) on the device's stream, with `shared` bytes of dynamic shared memory.
/// Errors name `op`, a string literal.
template <class... Params, class... Args>
void launch_with_shared(const char* op, int device, void (*kernel)(Params...), dim3 grid,
                        dim3 block, int64_t shared, Args&&... args) {
  cudaLaunchConfig_t config = {};
  config.gridDim = grid;
  config.blockDim = block;
  config.dynamicSmemBytes = size_t(shared);
  config.stream = stream(device);
  if (shared > 48 << 10)  // above the limit without an opt-in
    allow_shared_memory(op, device, reinterpret_cast<const void*>(kernel), shared);
  check_call(cudaLaunchKernelEx(&config, kernel, std::forward<Args>(args)...), op);
  queued(op, device);
}

/// As launch_with_shared(), without dynamic shared memory.
template <class... Params, class... Args>
void launch(const char* op, int device, void (*kernel)(Params...), dim3 grid, dim3 block,
            Args&&... args) {
  launch_with_shared(op, device, kernel, grid, block, 0, std::forward<Args>(args)...);
}

/// The number of blocks for `items` elements if a block handles `per_block` of them at a time:
/// enough to fill any GPU. The kernels loop over the rest.
inline unsigned blocks_for(int64_t items, int64_t per_block) {
  return unsigned(std::min<int64_t>(ceil_div(items, per_block), 4096));
}

__device__ inline int64_t thread_index() { return int64_t(blockIdx.x) * blockDim.x + threadIdx.x; }
__device__ inline int64_t thread_count() { return int64_t(gridDim.x) * blockDim.x; }

/// Converts to f32. A value that f32 does not represent exactly is rounded to odd, so that a second
/// rounding, to bf16, yields the nearest value (BFloat16 in core/dtype.h).
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

/// static_cast<To>(from) for every pair of element types, on the device. bf16 rounds to nearest
/// even. A NaN stays a NaN, as with BFloat16, but its payload may differ.
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

/// Calls f with the unsigned integer type of the dtype's size, for kernels that only move bits.
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

/// Calls f with the C++ type of f32, f64 or bf16, or, if `integers`, also of i64.
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

/// One value per warp of the block, in shared memory.
template <int Threads, class C>
__device__ inline C* warp_values() {
  __shared__ C values[Threads / 32];
  return values;
}

/// Combines the values of `Threads` neighboring threads: 32 are a warp, more are the whole block,
/// which must have exactly this many. All threads must take part; all get the bit-identical result.
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

/// Lane i returns the sum of v[i] over all lanes.
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

/// V elements, moved by one instruction if they have at most 16 bytes, as they usually do.
template <class T, int V>
struct alignas(sizeof(T) * V < 16 ? sizeof(T) * V : 16) Pack {
  T v[V];
};
template <class T>
constexpr int pack_size = 16 / int(sizeof(T));
/// The elements of x; null if x is undefined.
template <class T>
T* data_or_null(const Tensor& x) {
  return x.defined() ? x.data<T>() : nullptr;
}
inline bool aligned(const void* p) { return reinterpret_cast<uintptr_t>(p) % 16 == 0; }

/// The block shape of row kernels: a warp per short row and 8 rows per block, or
/// a block per long row.
template <int Threads>
inline dim3 row_block() {
  return dim3(Threads, Threads == 32 ? 8 : 1);
}
__device__ inline int64_t first_row() { return int64_t(blockIdx.x) * blockDim.y + threadIdx.y; }
__device__ inline int64_t row_step() { return int64_t(gridDim.x) * blockDim.y; }

}  // namespace stretto::cuda
