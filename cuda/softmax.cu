// Softmax along rows.
//
// Softmax: y = exp(x − max) / Σ exp(x − max); dx = y · (g − Σ g·y). Its logarithm:
// y = x − max − log Σ exp(x − max); dx = g − exp(y) · Σ g.
// Contiguous [rows, width]; computed in f32 (f64 for f64), sums in a fixed order. A row that fits
// in registers (cuda/runtime/rows.cuh) is read once. For a longer one, maximum and sum come from
// one pass (online softmax), the result from a second. Tested against the formula in f64.
#include "cuda/runtime/rows.cuh"
#include "cuda/softmax.h"

namespace stretto::cuda {
namespace {

/// The number of threads of a block with rows of this shape.
template <class Shape>
constexpr int block_threads = Shape::Threads == 32 ? 256 : Shape::Threads;

/// y [rows, width] = softmax of x [rows, width]
template <class Shape, bool logarithm, class T>
__global__ void __launch_bounds__(block_threads<Shape>, 1)
    softmax_rows(T* y, const T* x, int64_t rows, int64_t width) {
  using C = compute_t<T>;
  constexpr int Threads = Shape::Threads;
  // A row of −∞: all exponentials are 0.
  auto shift_of = [](C top) { return top == -C(INFINITY) ? C(0) : top; };
  auto factor_of = [](C total) {
    return logarithm ? math::log(total) : total == C(0) ? C(1) : C(1) / total;
  };
#pragma unroll 1
  for (int64_t row = first_row(); row < rows; row += row_step()) {
    const T* in = x + row * width;
    T* out = y + row * width;
    if constexpr (Shape::packs > 0) {
      RowInRegisters<Shape, T> v;
      v.load(in, int(width));
      C top = -C(INFINITY), total = 0;
      v.each(int(width), [&](int k) { top = Max()(v.v[k], top); });
      const C shift = shift_of(combine<Threads>(top, Max()));
      v.each(int(width), [&](int k) {
        v.v[k] -= shift;
        const C power = math::exp(v.v[k]);
        if constexpr (!logarithm) v.v[k] = power;
        total += power;
      });
      const C factor = factor_of(combine<Threads>(total, Sum()));
      v.store(out, int(width),
              [&](int k) { return logarithm ? v.v[k] - factor : v.v[k] * factor; });
    } else {
      PowerSum<C> sum;
      walk_packs<Shape>(
          width, [&](auto v) { sum.add(v); }, in);
      sum = combine<Threads>(sum);
      const C shift = shift_of(sum.top), factor = factor_of(sum.total);
      map_row<Shape>(
          out, width,
          [&](int64_t, C v) {
            return logarithm ? (v - shift) - factor : math::exp(v - shift) * factor;
          },
          in);
    }
  }
}

/// dx [rows, width] from y [rows, width] and the gradient g [rows, width]
template <class Shape, bool logarithm, class T>
__global__ void __launch_bounds__(block_threads<Shape>, 1)
    softmax_backward_rows(T* dx, const T* y, const T* g, int64_t rows, int64_t width) {
  using C = compute_t<T>;
  constexpr int Threads = Shape::Threads;
  // The row's sum is Σ g·y; for the logarithm, Σ g.
  auto part = [](C p, C slope) { return logarithm ? slope : p * slope; };
  auto result = [](C p, C slope, C total) {
    return logarithm ? slope - math::exp(p) * total : p * (slope - total);
  };
#pragma unroll 1
  for (int64_t row = first_row(); row < rows; row += row_step()) {
    const T *p = y + row * width, *dp = g + row * width;
    T* out = dx + row * width;
    C total = 0;
    if constexpr (Shape::packs > 0) {
      RowInRegisters<Shape, T> v, slope;
      v.load(p, int(width));
      slope.load(dp, int(width));
      v.each(int(width), [&](int k) { total += part(v.v[k], slope.v[k]); });
      total = combine<Threads>(total, Sum());
      v.store(out, int(width), [&](int k) { return result(v.v[k], slope.v[k], total); });
    } else {
      walk<Shape>(
          width, [&](int64_t, C v, C slope) { total += part(v, slope); }, p, dp);
      total = combine<Threads>(total, Sum());
      map_row<Shape>(
          out, width, [&](int64_t, C v, C slope) { return result(v, slope, total); }, p, dp);
    }
  }
}

/// Calls go(row shape, logarithm) with the kernels' template arguments as types. 1024 threads have
/// registers for 16 f32 elements each.
template <class T, class F>
void choose(int64_t width, bool logarithm, F go) {
  auto with_shape = [&](auto shape) {
    logarithm ? go(shape, std::true_type()) : go(shape, std::false_type());
  };
  if constexpr (sizeof(compute_t<T>) == 4) {
    constexpr int V = pack_size<T>;
    if (width % V == 0 && width > 256 * V * std::max(16 / V, 4) && width <= 1024 * 16)
      return with_shape(RowShape<1024, V, 16 / V>());
  }
  choose_rows<T>(width, with_shape);
}

}  // namespace

Tensor softmax(const Tensor& input, bool logarithm) {
  const Tensor x = row_major(input);
  Tensor y = empty_like(x);
  if (x.numel() == 0) return y;
  const int64_t width = x.size(-1), rows = x.numel() / width;
  dispatch_floating(x.dtype(), "softmax", [&]<class T>() {
    choose<T>(width, logarithm, [&](auto shape, auto log) {
      using Shape = decltype(shape);
      const dim3 block = row_block<Shape::Threads>();
      launch("softmax", x.device().index, softmax_rows<Shape, log(), T>, blocks_for(rows, block.y),
             block, y.data<T>(), x.data<T>(), rows, width);
    });
  });
  return y;
}

Tensor softmax_backward(const Tensor& output, const Tensor& grad, bool logarithm) {
  const Tensor y = row_major(output), g = row_major(grad);
  Tensor dx = empty_like(y);
  if (y.numel() == 0) return dx;
  const int64_t width = y.size(-1), rows = y.numel() / width;
  dispatch_floating(y.dtype(), "softmax_backward", [&]<class T>() {
    choose<T>(width, logarithm, [&](auto shape, auto log) {
      using Shape = decltype(shape);
      const dim3 block = row_block<Shape::Threads>();
      launch("softmax_backward", y.device().index, softmax_backward_rows<Shape, log(), T>,
             blocks_for(rows, block.y), block, dx.data<T>(), y.data<T>(), g.data<T>(), rows, width);
    });
  });
  return dx;
}

}  // namespace stretto::cuda
