// Cross-entropy of rows of logits.
//
// loss = (1 − ε) (log S − (x_t − top)) + ε/V Σ_i (log S − (x_i − top)) with top the row's maximum
// and S = Σ_i exp(x_i − top); dx_i = g (exp(x_i − top)/S − ε/V − (1 − ε) [i = t]).
// Contiguous [rows, width]. The forward and the backward kernel read each row once; the forward
// kernel reads it again if ε is not 0. The loss and the gradient of ignored rows are 0. Tested
// against the reference in tests/ops/op_table_test.cpp and the CPU.
#include "cuda/loss.h"
#include "cuda/runtime/rows.cuh"

namespace stretto::cuda {
namespace {

/// losses [rows], totals [rows, 2] from x [rows, width]
template <class Shape, class T>
__global__ void loss_rows(compute_t<T>* losses, compute_t<T>* totals, const T* x,
                          const int64_t* ids, int64_t rows, int64_t width, int64_t ignored,
                          compute_t<T> epsilon) {
  using C = compute_t<T>;
#pragma unroll 1
  for (int64_t row = first_row(); row < rows; row += row_step()) {
    const T* in = x + row * width;
    const int64_t target = ids[row];
    C loss = 0;
    PowerSum<C> sum = {0, 1};
    if (target != ignored) {  // the same for all threads of the row
      sum = {};
      walk_packs<Shape>(
          width, [&](auto v) { sum.add(v); }, in);
      sum = combine<Shape::Threads>(sum);
      const C log_total = math::log(sum.total);
      loss = (C(1) - epsilon) * (log_total - (cast<C>(in[target]) - sum.top));
      if (epsilon != C(0)) {
        C total_nll = 0;
        walk<Shape>(
            width, [&](int64_t, C v) { total_nll += log_total - (v - sum.top); }, in);
        loss += epsilon / C(width) * combine<Shape::Threads>(total_nll, Sum());
      }
    }
    if (threadIdx.x == 0) {
      losses[row] = loss;
      *reinterpret_cast<Pack<C, 2>*>(totals + 2 * row) = {sum.top, sum.total};
    }
  }
}

/// dx [rows, width]
template <class Shape, class T>
__global__ void loss_backward_rows(T* dx, const T* x, const int64_t* ids,
                                   const compute_t<T>* totals, const compute_t<T>* g, int64_t rows,
                                   int64_t width, int64_t ignored, compute_t<T> epsilon) {
  using C = compute_t<T>;
  const C even = epsilon / C(width);
#pragma unroll 1
  for (int64_t row = first_row(); row < rows; row += row_step()) {
    const int64_t target = ids[row];
    const bool counts = target != ignored;
    const C top = totals[2 * row], scale = C(1) / totals[2 * row + 1], slope = g[row];
    map_row<Shape>(
        dx + row * width, width,
        [&](int64_t i, C v) {
          const C p = math::exp(v - top) * scale - even;
          return counts ? slope * (i == target ? p - (C(1) - epsilon) : p) : C(0);
        },
        x + row * width);
  }
}

template <class T, class F>
void choose(int64_t width, F go) {
  choose_rows<T>(width, [&](auto chosen) {
    go(RowShape<decltype(chosen)::Threads, decltype(chosen)::pack, 0>());
  });
}

}  // namespace

Tensor cross_entropy(const Tensor& input, const Tensor& ids, int64_t ignored, double epsilon,
                     const Tensor& totals) {
  const Tensor x = row_major(input);
  const int64_t rows = ids.numel(), width = x.size(-1);
  Tensor losses = empty({rows}, options_of(totals));
  if (rows == 0) return losses;
  dispatch_floating(x.dtype(), "cross_entropy", [&]<class T>() {
    using C = compute_t<T>;
    choose<T>(width, [&](auto shape) {
      using Shape = decltype(shape);
      const dim3 block = row_block<Shape::Threads>();
      launch("cross_entropy", x.device().index, loss_rows<Shape, T>, blocks_for(rows, block.y),
             block, losses.data<C>(), totals.data<C>(), static_cast<const T*>(x.data<T>()),
             static_cast<const int64_t*>(ids.data<int64_t>()), rows, width, ignored, C(epsilon));
    });
  });
  return losses;
}

Tensor cross_entropy_backward(const Tensor& input, const Tensor& ids, int64_t ignored,
                              double epsilon, const Tensor& totals, const Tensor& g) {
  const Tensor x = row_major(input);
  Tensor dx = empty_like(x);
  if (x.numel() == 0) return dx;
  const int64_t rows = ids.numel(), width = x.size(-1);
  dispatch_floating(x.dtype(), "cross_entropy_backward", [&]<class T>() {
    using C = compute_t<T>;
    choose<T>(width, [&](auto shape) {
      using Shape = decltype(shape);
      const dim3 block = row_block<Shape::Threads>();
      launch("cross_entropy_backward", x.device().index, loss_backward_rows<Shape, T>,
             blocks_for(rows, block.y), block, dx.data<T>(), static_cast<const T*>(x.data<T>()),
             static_cast<const int64_t*>(ids.data<int64_t>()),
             static_cast<const C*>(totals.data<C>()), static_cast<const C*>(g.data<C>()), rows,
             width, ignored, C(epsilon));
    });
  });
  return dx;
}

}  // namespace stretto::cuda
