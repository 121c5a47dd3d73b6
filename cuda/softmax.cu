// Softmax along rows.
//
// y = exp(x − max) / Σ exp(x − max); dx = y · (g − Σ g·y). Of the logarithm, y = x − max − log Σ
// exp(x − max); dx = g − exp(y) · Σ g. Contiguous [rows, width]; computed in f32 (f64 for f64). A
// warp serves a row of up to 1024, a block a longer one. Three passes over the row (maximum, sum,
// result), the later two from cache; sums in a fixed order.
#include "cuda/common.cuh"
#include "cuda/softmax.h"

namespace stretto::cuda {
namespace {

constexpr int64_t short_row = 1024;

/// y [rows, width] = softmax of x [rows, width]
template <int Threads, bool logarithm, class T>
__global__ void softmax_rows(T* y, const T* x, int64_t rows, int64_t width) {
  using C = compute_t<T>;
  const C none = -C(INFINITY);
  for (int64_t row = first_row(); row < rows; row += row_step()) {
    const T* in = x + row * width;
    T* out = y + row * width;
    C top = none;
    for (int64_t i = threadIdx.x; i < width; i += Threads) top = Max()(cast<C>(in[i]), top);
    top = combine<Threads>(top, Max());
    const C shift = top == none ? C(0) : top;  // a row of −∞: all exponentials are 0
    C total = 0;
    for (int64_t i = threadIdx.x; i < width; i += Threads)
      total += math::exp(cast<C>(in[i]) - shift);
    total = combine<Threads>(total, Sum());
    if constexpr (logarithm) {
      const C log_total = math::log(total);
      for (int64_t i = threadIdx.x; i < width; i += Threads)
        out[i] = cast<T>((cast<C>(in[i]) - shift) - log_total);
    } else {
      const C divisor = total == C(0) ? C(1) : total;
      for (int64_t i = threadIdx.x; i < width; i += Threads)
        out[i] = cast<T>(math::exp(cast<C>(in[i]) - shift) / divisor);
    }
  }
}

/// dx [rows, width] from y [rows, width] and the gradient g [rows, width]
template <int Threads, bool logarithm, class T>
__global__ void softmax_backward_rows(T* dx, const T* y, const T* g, int64_t rows, int64_t width) {
  using C = compute_t<T>;
  for (int64_t row = first_row(); row < rows; row += row_step()) {
    const T* p = y + row * width;
    const T* dp = g + row * width;
    C total = 0;  // Σ g·y, of the logarithm Σ g
    for (int64_t i = threadIdx.x; i < width; i += Threads)
      total += logarithm ? cast<C>(dp[i]) : cast<C>(p[i]) * cast<C>(dp[i]);
    total = combine<Threads>(total, Sum());
    for (int64_t i = threadIdx.x; i < width; i += Threads) {
      const C v = cast<C>(p[i]), slope = cast<C>(dp[i]);
      dx[row * width + i] = cast<T>(logarithm ? slope - math::exp(v) * total : v * (slope - total));
    }
  }
}

/// Calls go(warp, logarithm) with what the kernels are made for, as types.
template <class F>
void choose(int64_t width, bool logarithm, F go) {
  auto of_width = [&](auto threads) {
    logarithm ? go(threads, std::true_type()) : go(threads, std::false_type());
  };
  width <= short_row ? of_width(std::integral_constant<int, 32>())
                     : of_width(std::integral_constant<int, 256>());
}

}  // namespace

Tensor softmax(const Tensor& x, bool logarithm) {
  Tensor y = empty_like(x);
  if (x.numel() == 0) return y;
  const int64_t width = x.size(-1), rows = x.numel() / width;
  dispatch_floating(x.dtype(), "softmax", [&](auto tag) {
    using T = typename decltype(tag)::type;
    choose(width, logarithm, [&](auto threads, auto log) {
      const dim3 block = row_block<threads()>();
      launch("softmax", x.device().index, softmax_rows<threads(), log(), T>,
             blocks_for(rows, block.y), block, y.data<T>(), x.data<T>(), rows, width);
    });
  });
  return y;
}

Tensor softmax_backward(const Tensor& y, const Tensor& g, bool logarithm) {
  Tensor dx = empty_like(y);
  if (y.numel() == 0) return dx;
  const int64_t width = y.size(-1), rows = y.numel() / width;
  dispatch_floating(y.dtype(), "softmax_backward", [&](auto tag) {
    using T = typename decltype(tag)::type;
    choose(width, logarithm, [&](auto threads, auto log) {
      const dim3 block = row_block<threads()>();
      launch("softmax_backward", y.device().index, softmax_backward_rows<threads(), log(), T>,
             blocks_for(rows, block.y), block, dx.data<T>(), y.data<T>(), g.data<T>(), rows, width);
    });
  });
  return dx;
}

}  // namespace stretto::cuda
