// Layer norm and RMS norm.
//
// y = x̂ · w + b with x̂ = (x − shift) · scale, shift the row's mean or 0, scale = 1/√(mean (x −
// shift)² + eps). dx = scale · (ĝ − mean ĝ − x̂ · mean ĝ·x̂) with ĝ = g · w, the second term for a
// mean only. Contiguous [rows, width]; statistics in f32 (f64 for f64). A row that fits in
// registers (cuda/rows.cuh) is read once. dw = Σ g·x̂ and db = Σ g: each block sums its rows, in
// order, into a partial row of its own; the partial rows are added by cuda::sum. Tested against the
// CPU's formula in f64.
#include "cuda/norm.h"
#include "cuda/reduce.h"
#include "cuda/rows.cuh"
#include "cuda/view.h"

namespace stretto::cuda {
namespace {

constexpr int partial_rows = 264;  // two blocks for each multiprocessor of an H100

/// y [rows, width], shift (or null), scale [rows] = x [rows, width]; w, b [width] or null
template <class Shape, class T>
__global__ void norm_rows(T* y, compute_t<T>* shift, compute_t<T>* scale, const T* x, const T* w,
                          const T* b, int64_t rows, int64_t width, compute_t<T> eps) {
  using C = compute_t<T>;
  constexpr int Threads = Shape::Threads;
  const C share = C(1) / C(width);
  auto scaled = [&](C unit, int64_t i) {
    if (w) unit *= cast<C>(w[i]);
    return b ? unit + cast<C>(b[i]) : unit;
  };
#pragma unroll 1
  for (int64_t row = first_row(); row < rows; row += row_step()) {
    const T* in = x + row * width;
    C mean = 0, power = 0, factor;
    auto square = [&](C v) {
      const C d = v - mean;
      power += d * d;
    };
    if constexpr (Shape::packs > 0) {
      RowInRegisters<Shape, T> v;
      v.load(in, int(width));
      if (shift) {
        v.each(int(width), [&](int, int k) { mean += v.v[k]; });
        mean = combine<Threads>(mean, Sum()) * share;
      }
      v.each(int(width), [&](int, int k) { square(v.v[k]); });
      factor = C(1) / math::sqrt(combine<Threads>(power, Sum()) * share + eps);
      v.store(y + row * width, int(width),
              [&](int i, int k) { return scaled((v.v[k] - mean) * factor, i); });
    } else {
      if (shift) {
        walk<Shape>(
            width, [&](int64_t, C v) { mean += v; }, in);
        mean = combine<Threads>(mean, Sum()) * share;
      }
      walk<Shape>(
          width, [&](int64_t, C v) { square(v); }, in);
      factor = C(1) / math::sqrt(combine<Threads>(power, Sum()) * share + eps);
      map_row<Shape>(
          y + row * width, width, [&](int64_t i, C v) { return scaled((v - mean) * factor, i); },
          in);
    }
    if (threadIdx.x == 0) {
      if (shift) shift[row] = mean;
      scale[row] = factor;
    }
  }
}

/// The rows of a block's `parts` [height][width of the registers] added to partial [width].
template <class Shape, class C>
__device__ inline void store_partial(C* partial, const C (&part)[Shape::packs * Shape::pack],
                                     int width) {
  constexpr int V = Shape::pack, K = Shape::packs, Threads = Shape::Threads;
  constexpr int height = Threads == 32 ? 8 : 1;
  __shared__ C parts[height][Threads == 32 ? Threads * K * V : 1];
  if constexpr (height > 1) {
    __syncthreads();
#pragma unroll
    for (int k = 0; k < K * V; ++k) parts[threadIdx.y][k * Threads + threadIdx.x] = part[k];
    __syncthreads();
    if (threadIdx.y > 0) return;
  }
#pragma unroll
  for (int k = 0; k < K * V; ++k) {
    const int i = ((k / V) * Threads + int(threadIdx.x)) * V + k % V;
    if (i >= width) continue;
    C sum = part[k];
    if constexpr (height > 1) {
#pragma unroll
      for (int y = 1; y < height; ++y) sum += parts[y][k * Threads + threadIdx.x];
    }
    partial[i] = sum;
  }
}

/// dx [rows, width]; dw, db [gridDim.x, width] or null
template <class Shape, class T>
__global__ void __launch_bounds__(256)
    norm_backward_rows(T* dx, compute_t<T>* dw, compute_t<T>* db, const T* x, const T* w,
                       const T* g, const compute_t<T>* shift, const compute_t<T>* scale,
                       int64_t rows, int64_t width) {
  using C = compute_t<T>;
  constexpr int Threads = Shape::Threads;
  const C share = C(1) / C(width);
  if constexpr (Shape::packs > 0) {
    constexpr int N = Shape::packs * Shape::pack;
    C sum_w[N] = {}, sum_b[N] = {};
#pragma unroll 1
    for (int64_t row = first_row(); row < rows; row += row_step()) {
      RowInRegisters<Shape, T> unit, slope;
      unit.load(x + row * width, int(width));
      slope.load(g + row * width, int(width));
      const C mean = shift ? shift[row] : C(0), factor = scale[row];
      C mean_g = 0, mean_gx = 0;
      unit.each(int(width), [&](int i, int k) {
        unit.v[k] = (unit.v[k] - mean) * factor;
        sum_w[k] += slope.v[k] * unit.v[k];
        sum_b[k] += slope.v[k];
        if (w) slope.v[k] *= cast<C>(w[i]);
        mean_g += slope.v[k];
        mean_gx += slope.v[k] * unit.v[k];
      });
      mean_g = shift ? combine<Threads>(mean_g, Sum()) * share : C(0);
      mean_gx = combine<Threads>(mean_gx, Sum()) * share;
      unit.store(dx + row * width, int(width),
                 [&](int, int k) { return factor * (slope.v[k] - mean_g - unit.v[k] * mean_gx); });
    }
    if (dw) store_partial<Shape>(dw + blockIdx.x * width, sum_w, int(width));
    if (db) store_partial<Shape>(db + blockIdx.x * width, sum_b, int(width));
  } else {
    C *own_w = dw ? dw + blockIdx.x * width : nullptr,
      *own_b = db ? db + blockIdx.x * width : nullptr;
#pragma unroll 1
    for (int64_t row = first_row(); row < rows; row += row_step()) {
      const T *in = x + row * width, *gradient = g + row * width;
      const C mean = shift ? shift[row] : C(0), factor = scale[row];
      const bool first = row == first_row();
      C mean_g = 0, mean_gx = 0;
      walk<Shape>(
          width,
          [&](int64_t i, C v, C slope) {
            const C unit = (v - mean) * factor;
            if (own_w) own_w[i] = first ? slope * unit : own_w[i] + slope * unit;
            if (own_b) own_b[i] = first ? slope : own_b[i] + slope;
            if (w) slope *= cast<C>(w[i]);
            mean_g += slope;
            mean_gx += slope * unit;
          },
          in, gradient);
      mean_g = shift ? combine<Threads>(mean_g, Sum()) * share : C(0);
      mean_gx = combine<Threads>(mean_gx, Sum()) * share;
      map_row<Shape>(
          dx + row * width, width,
          [&](int64_t i, C v, C slope) {
            if (w) slope *= cast<C>(w[i]);
            return factor * (slope - mean_g - (v - mean) * factor * mean_gx);
          },
          in, gradient);
    }
  }
}

template <class T>
const T* data_or_null(const Tensor& x) {
  return x.defined() && x.numel() > 0 ? x.data<T>() : nullptr;
}

}  // namespace

Tensor norm(const Tensor& input, const Tensor& weight, const Tensor& bias, double eps,
            const Tensor& shift, const Tensor& scale) {
  const Tensor x = row_major(input);
  Tensor y = empty_like(x);
  if (x.numel() == 0) return y;
  const int64_t width = x.size(-1), rows = x.numel() / width;
  dispatch_floating(x.dtype(), "norm", [&](auto tag) {
    using T = typename decltype(tag)::type;
    using C = compute_t<T>;
    choose_rows<T>(width, [&](auto shape) {
      using Shape = decltype(shape);
      const dim3 block = row_block<Shape::Threads>();
      launch("norm", x.device().index, norm_rows<Shape, T>, blocks_for(rows, block.y), block,
             y.data<T>(), shift.defined() ? shift.data<C>() : nullptr, scale.data<C>(),
             static_cast<const T*>(x.data<T>()), data_or_null<T>(weight), data_or_null<T>(bias),
             rows, width, C(eps));
    });
  });
  return y;
}

Tensor norm_backward(const Tensor& input, const Tensor& weight, const Tensor& gradient,
                     const Tensor& shift, const Tensor& scale, bool want_dw, bool want_db,
                     Tensor& dw, Tensor& db) {
  const Tensor x = row_major(input), g = row_major(gradient);
  Tensor dx = empty_like(x);
  const int64_t width = x.size(-1), rows = scale.numel();
  Tensor parts_w, parts_b;
  auto parts_of = [&](int64_t blocks) { return empty({blocks, width}, options_of(scale)); };
  if (x.numel() == 0) {
    if (want_dw) fill(dw = empty({width}, options_of(x)), 0);
    if (want_db) fill(db = empty({width}, options_of(x)), 0);
    return dx;
  }
  dispatch_floating(x.dtype(), "norm_backward", [&](auto tag) {
    using T = typename decltype(tag)::type;
    using C = compute_t<T>;
    choose_rows<T>(width, [&](auto shape) {
      using Shape = decltype(shape);
      const dim3 block = row_block<Shape::Threads>();
      const int64_t blocks = std::min<int64_t>(ceil_div(rows, block.y), partial_rows);
      if (want_dw) parts_w = parts_of(blocks);
      if (want_db) parts_b = parts_of(blocks);
      launch("norm_backward", x.device().index, norm_backward_rows<Shape, T>, unsigned(blocks),
             block, dx.data<T>(), want_dw ? parts_w.data<C>() : nullptr,
             want_db ? parts_b.data<C>() : nullptr, static_cast<const T*>(x.data<T>()),
             data_or_null<T>(weight), static_cast<const T*>(g.data<T>()), data_or_null<C>(shift),
             static_cast<const C*>(scale.data<C>()), rows, width);
    });
  });
  if (want_dw) dw = sum(parts_w, {0}, false).to(x.dtype());
  if (want_db) db = sum(parts_b, {0}, false).to(x.dtype());
  return dx;
}

}  // namespace stretto::cuda
