// Index arithmetic of the kernels: which element, which column, which part of a sum. Plain C++,
// used by the kernels and tested on the host (tests/cuda/index_test.cpp).
#pragma once

#include <algorithm>
#include <cstdint>

#include "core/math.h"
#include "core/shape.h"

namespace stretto::cuda {

/// N operands seen with one shape, passed to kernels by value. Strides in elements; 0 repeats.
template <int N>
struct Layout {
  int dims = 0;
  int64_t sizes[Shape::max_dims] = {};
  int64_t strides[N][Shape::max_dims] = {};
};

template <int N>
struct Offsets {
  int64_t v[N];
};

/// Sizes of 1 dropped, and neighbouring dimensions merged where every operand steps through them
/// evenly: a contiguous tensor has one dimension, and its kernels no division.
template <int N>
Layout<N> make_layout(const Shape& sizes, const Shape (&strides)[N]) {
  Layout<N> layout;
  for (int64_t d = 0; d < sizes.dim(); ++d) {
    if (sizes[d] == 1) continue;
    const int last = layout.dims - 1;
    bool merge = layout.dims > 0;
    for (int n = 0; n < N && merge; ++n)
      merge = layout.strides[n][last] == strides[n][d] * sizes[d];
    const int at = merge ? last : layout.dims++;
    layout.sizes[at] = merge ? layout.sizes[at] * sizes[d] : sizes[d];
    for (int n = 0; n < N; ++n) layout.strides[n][at] = strides[n][d];
  }
  return layout;
}

/// Where element i (row-major) of the layout lies in each operand.
template <int N>
STRETTO_HD inline Offsets<N> offsets(const Layout<N>& layout, int64_t i) {
  Offsets<N> at = {};
  uint64_t rest = uint64_t(i);  // unsigned: cheaper division
  for (int d = layout.dims - 1; d >= 0; --d) {
    const uint64_t outer = d > 0 ? rest / uint64_t(layout.sizes[d]) : 0;
    const int64_t index = int64_t(rest - outer * uint64_t(layout.sizes[d]));
    for (int n = 0; n < N; ++n) at.v[n] += index * layout.strides[n][d];
    rest = outer;
  }
  return at;
}

STRETTO_HD inline int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

/// skew: the column of x [.., M, W] that y[.., i, j] shows, if it is in [0, W).
STRETTO_HD inline int64_t skew_column(int64_t i, int64_t j, int64_t m) { return j - i + m - 1; }
/// unskew: the column of y [.., M, N] that x[.., i, c] shows, if it is in [0, N).
STRETTO_HD inline int64_t unskew_column(int64_t i, int64_t c, int64_t m) { return c + i - m + 1; }

/// How a sum is laid out. Output o starts at offsets(kept, o) of x and adds the `count` elements
/// offsets(reduced, r). The range of r is cut into `splits` chunks of `chunk` (the last may be
/// shorter, none is empty); the chunks' sums are added in a second step. All of it depends on sizes
/// and strides only, so the order of additions does too.
struct SumPlan {
  Layout<1> kept, reduced;
  int64_t outputs = 1, count = 1, splits = 1, chunk = 1;
  int threads =
      0;  // by rows: 32 or 256 threads share an output; 0: by columns, a thread per output
};

STRETTO_HD inline int64_t chunk_end(const SumPlan& plan, int64_t begin) {
  return begin + plan.chunk < plan.count ? begin + plan.chunk : plan.count;
}

inline SumPlan plan_sum(const Shape& sizes, const Shape& strides, const Shape& dims) {
  SumPlan plan;
  Shape kept_sizes, kept_strides[1], reduced_sizes, reduced_strides[1];
  for (int64_t d = 0, next = 0; d < sizes.dim(); ++d) {
    const bool reduce = next < dims.dim() && dims[next] == d;
    if (reduce) ++next;
    (reduce ? reduced_sizes : kept_sizes).push_back(sizes[d]);
    (reduce ? reduced_strides : kept_strides)[0].push_back(strides[d]);
  }
  plan.kept = make_layout(kept_sizes, kept_strides);
  plan.reduced = make_layout(reduced_sizes, reduced_strides);
  plan.outputs = kept_sizes.numel();
  plan.count = reduced_sizes.numel();
  if (plan.outputs == 0 || plan.count == 0) return plan;

  auto inner_stride = [](const Layout<1>& l) {
    return l.dims ? l.strides[0][l.dims - 1] : INT64_MAX;
  };
  const bool rows = plan.count >= 32 &&
                    (plan.outputs < 8 || inner_stride(plan.reduced) < inner_stride(plan.kept));
  constexpr int64_t enough_blocks = 1024;  // a few for each multiprocessor of any GPU
  if (rows) {
    plan.threads = plan.count <= 1024 ? 32 : 256;
    plan.splits = plan.threads == 32
                      ? 1
                      : std::min(ceil_div(enough_blocks, plan.outputs), ceil_div(plan.count, 8192));
  } else {
    plan.splits =
        std::min(ceil_div(enough_blocks, ceil_div(plan.outputs, 32)), ceil_div(plan.count, 256));
  }
  plan.chunk = ceil_div(plan.count, plan.splits);
  plan.splits = ceil_div(plan.count, plan.chunk);
  return plan;
}

}  // namespace stretto::cuda
