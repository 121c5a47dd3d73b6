// Softmax along rows.
//
// y = exp(x − max) / Σ exp(x − max); dx = y · (g − Σ g·y). Contiguous [rows, width]; computed in
// f32 (f64 for f64). A warp serves a row of up to 1024, a block a longer one. Three passes over the
// row (maximum, sum, result), the later two from cache; sums in a fixed order.
#include "cuda/common.cuh"
#include "cuda/kernels.h"

namespace stretto::cuda {
namespace {

constexpr int64_t short_row = 1024;

/// y [rows, width] = softmax of x [rows, width]
template <int Threads, class T>
__global__ void softmax_rows(T* y, const T* x, int64_t rows, int64_t width) {
  using C = compute_t<T>;
  const C none = -C(INFINITY);
  for (int64_t row = first_row(); row < rows; row += row_step()) {
    const T* in = x + row * width;
    T* out = y + row * width;
    C top = none;
    for (int64_t i = threadIdx.x; i < width; i += Threads) top = Max()(cast<C>(in[i]), top);
    top = combine<Threads>(top, Max());
    C total = 0;
    if (top != none) {
      for (int64_t i = threadIdx.x; i < width; i += Threads)
        total += math::exp(cast<C>(in[i]) - top);
    }
    total = combine<Threads>(total, Sum());
    for (int64_t i = threadIdx.x; i < width; i += Threads)
      out[i] = cast<T>(top == none ? C(0) : math::exp(cast<C>(in[i]) - top) / total);
  }
}

/// dx [rows, width] from y [rows, width] and the gradient g [rows, width]
template <int Threads, class T>
__global__ void softmax_backward_rows(T* dx, const T* y, const T* g, int64_t rows, int64_t width) {
  using C = compute_t<T>;
  for (int64_t row = first_row(); row < rows; row += row_step()) {
    const T* p = y + row * width;
    const T* dp = g + row * width;
    C dot = 0;
    for (int64_t i = threadIdx.x; i < width; i += Threads) dot += cast<C>(p[i]) * cast<C>(dp[i]);
    dot = combine<Threads>(dot, Sum());
    for (int64_t i = threadIdx.x; i < width; i += Threads)
      dx[row * width + i] = cast<T>(cast<C>(p[i]) * (cast<C>(dp[i]) - dot));
  }
}

}  // namespace

Tensor softmax(const Tensor& x) {
  Tensor y = empty_like(x);
  if (x.numel() == 0) return y;
  const int64_t width = x.size(-1), rows = x.numel() / width;
  dispatch_floating(x.dtype(), "softmax", [&](auto tag) {
    using T = typename decltype(tag)::type;
    auto go = [&](auto kernel, dim3 block) {
      launch("softmax", x.device().index, kernel, blocks_for(rows, block.y), block, y.data<T>(),
             x.data<T>(), rows, width);
    };
    if (width <= short_row) {
      go(softmax_rows<32, T>, row_block<32>());
    } else {
      go(softmax_rows<256, T>, row_block<256>());
    }
  });
  return y;
}

Tensor softmax_backward(const Tensor& y, const Tensor& g) {
  Tensor dx = empty_like(y);
  if (y.numel() == 0) return dx;
  const int64_t width = y.size(-1), rows = y.numel() / width;
  dispatch_floating(y.dtype(), "softmax_backward", [&](auto tag) {
    using T = typename decltype(tag)::type;
    auto go = [&](auto kernel, dim3 block) {
      launch("softmax_backward", y.device().index, kernel, blocks_for(rows, block.y), block,
             dx.data<T>(), y.data<T>(), g.data<T>(), rows, width);
    };
    if (width <= short_row) {
      go(softmax_backward_rows<32, T>, row_block<32>());
    } else {
      go(softmax_backward_rows<256, T>, row_block<256>());
    }
  });
  return dx;
}

}  // namespace stretto::cuda
