// What kernels of all codes of stochastic positional encoding have in common.
#pragma once

#include "cuda/runtime/common.cuh"

namespace stretto::cuda {

/// One side of a launch: x [B, H, n, width].
template <class S>
struct Rows {
  S* data;
  int64_t batch, head, row;
  bool packs;  // of so many numbers as rows_of() was asked for
};

template <class S>
Rows<S> rows_of(const Tensor& x, int pack) {
  const Shape& s = x.strides();
  const int64_t row = x.size(2) == 1 ? x.size(3) : s[2];
  using Number = std::remove_const_t<S>;
  bool packs = x.size(3) % pack == 0 && row % pack == 0;
  for (const int d : {0, 1}) packs = packs && (x.size(d) == 1 || s[d] % pack == 0);
  Number* const data = x.data<Number>();
  packs = packs && reinterpret_cast<uintptr_t>(data) % (size_t(pack) * sizeof(Number)) == 0;
  return {data, s[0], s[1], row, packs};
}

template <class F>
void with_type(const Tensor& x, F f) {
  dispatch_among<BFloat16, float>(x.dtype(), f);
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

}  // namespace stretto::cuda
