#include "ops/softmax.h"

#include "autograd/tape.h"
#include "cuda/softmax.h"
#include "ops/elementwise.h"
#include "ops/loops.h"
#include "ops/reduce.h"
#include "ops/rows.h"

namespace stretto {
namespace {

// y = softmax(x) of one row. A NaN in the row makes the sum NaN, and so the whole row. If y has a
// narrower type, the exponentials are stored in `powers` [n], or computed twice if it is null.
template <class T>
STRETTO_CLONES void softmax_row(const T* __restrict x, T* y, int64_t n, compute_t<T>* powers) {
  using C = compute_t<T>;
  const C shift = rows::softmax_shift<C>(n, [&](int64_t i) { return C(x[i]); });
  const auto power = [&](int64_t i) { return math::exp_negative(C(x[i]) - shift); };
  if constexpr (std::is_same_v<T, C>) powers = y;
  if (powers) {
    for (int64_t begin = 0, end; begin < n; begin = end) {
      end = rows::fetch_next(n, begin, x + n);
      for (int64_t i = begin; i < end; ++i) powers[i] = power(i);
    }
    const C scale = rows::softmax_scale(rows::sum<C>(n, [&](int64_t i) { return powers[i]; }));
#pragma GCC ivdep
    for (int64_t i = 0; i < n; ++i) y[i] = T(powers[i] * scale);
  } else {
    const C scale = rows::softmax_scale(rows::sum_of_powers(x, n, shift));
    for (int64_t i = 0; i < n; ++i) y[i] = T(power(i) * scale);
  }
}

template <class T>
STRETTO_CLONES void log_softmax_row(const T* __restrict x, T* __restrict y, int64_t n) {
  using C = compute_t<T>;
  const C shift = rows::softmax_shift<C>(n, [&](int64_t i) { return C(x[i]); });
  const C log_total = math::log(rows::sum_of_powers(x, n, shift));
  // log total is subtracted separately: in shift + log total, a large shift would absorb it.
  for (int64_t i = 0; i < n; ++i) y[i] = T((C(x[i]) - shift) - log_total);
}

// Computes dx = y (g − Σ g y), or dx = g − e^y Σ g for log_softmax. dx may be g.
template <class T>
STRETTO_CLONES void softmax_backward_row(const T* y, const T* g, T* dx, int64_t n, bool logarithm) {
  using C = compute_t<T>;
  if (logarithm) {
    const C total = rows::sum<C>(n, [&](int64_t i) { return C(g[i]); });
#pragma GCC ivdep
    for (int64_t i = 0; i < n; ++i) dx[i] = T(C(g[i]) - math::exp_negative(C(y[i])) * total);
  } else {
    const C dot = rows::sum<C>(n, [&](int64_t i) { return C(g[i]) * C(y[i]); });
#pragma GCC ivdep
    for (int64_t i = 0; i < n; ++i) dx[i] = T(C(y[i]) * (C(g[i]) - dot));
  }
}

Tensor softmax_cpu(const Tensor& x, bool logarithm) {
  Tensor y = empty_like(x);
  const int64_t n = x.size(-1);
  dispatch_floating(x.dtype(), "softmax", [&]<class T>() {
    const T* from = x.data<T>();
    T* to = y.data<T>();
    using C = compute_t<T>;
    parallel_for(n == 0 ? 0 : x.numel() / n, rows_per_chunk(n), [&](int64_t begin, int64_t end) {
      constexpr int64_t most = std::is_same_v<T, C> ? 0 : 4096;
      C powers[most + 1];
      for (int64_t r = begin; r < end; ++r)
        logarithm ? log_softmax_row(from + r * n, to + r * n, n)
                  : softmax_row(from + r * n, to + r * n, n, n <= most ? powers : nullptr);
    });
  });
  return y;
}

Tensor softmax_backward_cpu(const Tensor& y, const Tensor& g, bool logarithm) {
  Tensor dx = in_place_or_new(g);
  const int64_t n = y.size(-1);
  dispatch_floating(y.dtype(), "softmax", [&]<class T>() {
    const T *py = y.data<T>(), *pg = g.data<T>();
    T* to = dx.data<T>();
    parallel_for(n == 0 ? 0 : y.numel() / n, rows_per_chunk(n), [&](int64_t begin, int64_t end) {
      for (int64_t r = begin; r < end; ++r)
        softmax_backward_row(py + r * n, pg + r * n, to + r * n, n, logarithm);
    });
  });
  return dx;
}

Tensor along(const char* op, const Tensor& x, int64_t d, bool logarithm) {
  check_floating(op, x);
  if (x.dim() == 0) return along(op, x.unsqueeze(0), 0, logarithm).squeeze(0);
  d = wrap_dim(op, d, x.dim());
  if (d != x.dim() - 1) return along(op, x.transpose(d, -1), -1, logarithm).transpose(d, -1);
  // Gradients: y · (g − Σ g y), and g − e^y Σ g for log_softmax.
  return record(
      op, {x}, on_device(x.detach().contiguous(), softmax_cpu, cuda::softmax, logarithm),
      [logarithm](Backward& b) {
        const Tensor y = b.output();
        if (!grad_enabled()) {
          const Tensor g = b.take_grad();
          Tensor copy;
          return Tensors{on_device(y, softmax_backward_cpu, cuda::softmax_backward,
                                   contiguous(g, copy), logarithm)};
        }
        if (logarithm) return Tensors{b.grad() - exp(y) * sum(b.grad(), {-1}, true)};
        return Tensors{y * (b.grad() - sum(b.grad() * y, {-1}, true))};
      },
      Keep::outputs);
}

}  // namespace

Tensor softmax(const Tensor& x, Int d) { return along("softmax", x, d, false); }
Tensor log_softmax(const Tensor& x, Int d) { return along("log_softmax", x, d, true); }

}  // namespace stretto
