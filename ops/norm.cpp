#include "ops/norm.h"

#include <type_traits>

#include "autograd/tape.h"
#include "cuda/norm.h"
#include "ops/create.h"
#include "ops/dropout.h"
#include "ops/elementwise.h"
#include "ops/loops.h"
#include "ops/reduce.h"
#include "ops/rows.h"
#include "ops/view.h"

namespace stretto {
namespace {

// Layer norm subtracts the mean (`center`), RMS norm does not; otherwise they are
// the same function.
//
// Row statistics: x̂ = ((x − shift) − rest) · scale. The mean of a row is shift + rest. Usually the
// rounding error of shift is small relative to the deviation of the row or √eps, and rest is 0.
// rest is computed only if the mean is large relative to the deviation, as in a constant row.
template <class C>
struct RowStats {
  C shift, rest, scale;
};

// mean − shift, summed relative to the first element: exact if all elements are equal.
template <class T>
[[gnu::always_inline]] inline compute_t<T> rest_of_mean(const T* x, int64_t n, compute_t<T> shift) {
  using C = compute_t<T>;
  const C first = C(x[0]) - shift;
  return first + rows::sum<C>(n, [&](int64_t i) { return (C(x[i]) - shift) - first; }) / C(n);
}

template <class T>
STRETTO_CLONES RowStats<compute_t<T>> normalize_row(const T* x, const T* w, const T* b,
                                                    T* __restrict y, int64_t n, compute_t<T> eps,
                                                    bool center) {
  using C = compute_t<T>;
  const C shift = center ? rows::sum<C>(n, [&](int64_t i) { return C(x[i]); }) / C(n) : C(0);
  const auto variance = [&](auto deviation) __attribute__((always_inline)) {
    const auto square = [&](int64_t i) { return deviation(i) * deviation(i); };
    return rows::sum<C>(n, square) / C(n) + eps;
  };
  const auto write = [&](C scale, auto deviation) __attribute__((always_inline)) {
    for (int64_t begin = 0, end; begin < n; begin = end) {
      end = rows::fetch_next(n, begin, x + n);
      if (w && b) {
        for (int64_t i = begin; i < end; ++i) y[i] = T(deviation(i) * scale * C(w[i]) + C(b[i]));
      } else if (w) {
        for (int64_t i = begin; i < end; ++i) y[i] = T(deviation(i) * scale * C(w[i]));
      } else {
        for (int64_t i = begin; i < end; ++i) y[i] = T(deviation(i) * scale + (b ? C(b[i]) : C(0)));
      }
    }
  };
  const auto from_shift = [&](int64_t i) { return C(x[i]) - shift; };
  const C near = variance(from_shift);
  if (!(shift * shift > C(cuda::far_mean) * near)) {
    const C scale = C(1) / math::sqrt(near);
    write(scale, from_shift);
    return {shift, C(0), scale};
  }
  const C rest = rest_of_mean(x, n, shift);
  const auto from_mean = [&](int64_t i) { return (C(x[i]) - shift) - rest; };
  const C scale = C(1) / math::sqrt(variance(from_mean));
  write(scale, from_mean);
  return {shift, rest, scale};
}

// The rows of operands and of dx in the backward pass; dx may be g.
template <class T>
struct BackwardRow {
  const T *x, *w, *g, *onto;
  T* dx;
};

// Computes dx = scale · (g' − mean g' − x̂ · mean(g' x̂)) with g' = g·w, plus `onto` unless it is
// null, dw += g x̂ and db += g. A template parameter selects the gradients that are needed, so that
// the loop reads and writes each operand once; `runtime` computes the gradients that are not null.
enum class Needed { dx, dx_dw, dx_dw_db, runtime };
template <class T, Needed needed>
STRETTO_CLONES void normalize_row_backward(const BackwardRow<T>& row, compute_t<T>* __restrict dw,
                                           compute_t<T>* __restrict db, int64_t n,
                                           RowStats<compute_t<T>> s, bool center) {
  using C = compute_t<T>;
  const T *const x = row.x, *const w = row.w, *const g = row.g, *const onto = row.onto;
  T* const dx = row.dx;
  constexpr bool runtime = needed == Needed::runtime;
  const bool with_w = runtime ? dw != nullptr : needed != Needed::dx;
  const bool with_b = runtime ? db != nullptr : needed == Needed::dx_dw_db;
  const auto unit = [&](int64_t i) {
    const C deviation = C(x[i]) - s.shift;
    return (runtime ? deviation - s.rest : deviation) * s.scale;
  };
  const auto slope = [&](int64_t i) { return C(g[i]) * C(w[i]); };
  const C mean_g = center ? rows::sum<C>(n, slope) / C(n) : C(0);
  const C mean_gx = rows::sum<C>(n, [&](int64_t i) { return slope(i) * unit(i); }) / C(n);
  const auto write = [&](auto plus) __attribute__((always_inline)) {
    for (int64_t begin = 0, end; begin < n; begin = end) {
      end = rows::fetch_next(n, begin, x + n, g + n);
#pragma GCC ivdep
      for (int64_t i = begin; i < end; ++i) {
        const C u = unit(i), grad = C(g[i]);
        if (with_w) dw[i] += grad * u;
        if (with_b) db[i] += grad;
        dx[i] = T(plus(s.scale * (grad * C(w[i]) - mean_g - u * mean_gx), i));
      }
    }
  };
  if (onto)
    write([&](C value, int64_t i) { return value + C(onto[i]); });
  else
    write([](C value, int64_t) { return value; });
}

// For rows with rest ≠ 0, for f64, and for db without dw, which are all rare.
template <class T>
constexpr auto rare_row = normalize_row_backward<T, Needed::runtime>;

template <class T>
auto common_row(bool want_dw, bool want_db) {
  if constexpr (!std::is_same_v<T, double>) {
    if (want_dw && want_db) return normalize_row_backward<T, Needed::dx_dw_db>;
    if (want_dw) return normalize_row_backward<T, Needed::dx_dw>;
    if (!want_db) return normalize_row_backward<T, Needed::dx>;
  }
  return rare_row<T>;
}

// x minus the means of its rows, from the approximate means of the forward pass.
Tensor centered(const Tensor& x, const Tensor& means) {
  Shape rows = x.shape();
  rows.back() = 1;
  const Tensor near = (x - means[0].reshape(rows)) - means[1].reshape(rows);
  return near - mean(near, {-1}, true);
}

// The backward pass in differentiable ops, for gradients of gradients, from the gradient of the
// output; bf16 is computed in f32.
Tensors composed_backward(const Tensor& grad, const Tensor& given, const Tensor& weight, double eps,
                          const Tensor& means, bool want_dw, bool want_db) {
  const bool center = means.defined();
  const DType dtype = given.dtype(), wide = compute_type(dtype);
  const Tensor x = given.to(wide), g = grad.to(wide);
  const Tensor d = center && x.numel() > 0 ? centered(x, means) : x;
  const Tensor scale = rsqrt(mean(square(d), {-1}, true) + eps);
  const Tensor unit = d * scale, slope = weight.defined() ? g * weight.to(wide) : g;
  Tensor dx = slope - unit * mean(slope * unit, {-1}, true);
  if (center) dx = dx - mean(slope, {-1}, true);
  const Shape last{x.size(-1)};
  return {(scale * dx).to(dtype), want_dw ? sum_to(g * unit, last).to(dtype) : Tensor(),
          want_db ? sum_to(g, last).to(dtype) : Tensor()};
}

// Returns the sum over the chunks of `partial` [chunks, n], in order.
Tensor add_up(const Tensor& partial, const Tensor& like) {
  return sum(partial, {0}).to(like.dtype());
}

// Returns dx + `onto`, which may be undefined, in g's memory if no other handle refers to it; and dw
// and db if they are needed.
Tensors backward_cpu(const Tensor& x, const Tensor& w, const Tensor& g, const Tensor& onto,
                     const Tensor& means, const Tensor& scale, bool want_dw, bool want_db) {
  const int64_t n = x.size(-1), count = scale.numel(), chunk = 64;
  const bool center = means.defined();
  const Tensor weight = w.defined() ? w : ones({n}, options_of(x));
  Tensor dx = in_place_or_new(g), sums_w, sums_b;
  const TensorOptions wide = options_of(scale);
  const int64_t chunks = (count + chunk - 1) / chunk;
  if (want_dw) sums_w = zeros({chunks, n}, wide);
  if (want_db) sums_b = zeros({chunks, n}, wide);
  dispatch_floating(x.dtype(), "norm", [&]<class T>() {
    using C = compute_t<T>;
    const T *px = x.data<T>(), *pg = g.data<T>();
    const T *pw = weight.data<T>(), *earlier = onto.defined() ? onto.data<T>() : nullptr;
    const C *mu = center ? means.data<C>() : nullptr, *s = scale.data<C>();
    T* to = dx.data<T>();
    C *pdw = want_dw ? sums_w.data<C>() : nullptr, *pdb = want_db ? sums_b.data<C>() : nullptr;
    const auto row = common_row<T>(want_dw, want_db);
    parallel_for(chunks, 1, [&](int64_t begin, int64_t end) {
      for (int64_t r = begin * chunk; r < std::min(count, end * chunk); ++r) {
        const RowStats<C> stats{mu ? mu[r] : C(0), mu ? mu[count + r] : C(0), s[r]};
        (stats.rest != 0 ? rare_row<T> : row)(
            {px + r * n, pw, pg + r * n, earlier ? earlier + r * n : nullptr, to + r * n},
            pdw ? pdw + r / chunk * n : nullptr, pdb ? pdb + r / chunk * n : nullptr, n, stats,
            center);
      }
    });
  });
  return {dx, want_dw ? add_up(sums_w, x) : Tensor(), want_db ? add_up(sums_b, x) : Tensor()};
}

// Detached and contiguous; may be undefined.
Tensor plain(const Tensor& t) { return t.defined() ? t.detach().contiguous() : t; }

Tensors fused_backward(Backward& b, const Tensor& x, const Tensor& w, const Tensor& means,
                       const Tensor& scale) {
  const Tensor g = b.take_grad(), pending = b.take_pending(0);
  const Tensor onto = pending.defined() ? pending.contiguous() : Tensor();
  Tensor copy;
  const Tensor from = plain(x), weight = plain(w);
  const bool want_dw = b.needs(1), want_db = b.needs(2);
  if (from.device().is_cpu())
    return backward_cpu(from, weight, contiguous(g, copy), onto, means, scale, want_dw, want_db);
  const cuda::NormGradients to = cuda::norm_backward({from, weight, means, scale},
                                                     contiguous(g, copy), onto, want_dw, want_db);
  return {to.dx, to.dw, to.db};
}

// Returns y; writes shift and rest to means [2, N] if it is defined, and scale [N].
Tensor normalize_cpu(const Tensor& x, const Tensor& w, const Tensor& c, double eps,
                     const Tensor& means, const Tensor& scale) {
  Tensor y = empty_like(x);
  const int64_t n = x.size(-1), count = scale.numel();
  const bool center = means.defined();
  dispatch_floating(x.dtype(), "norm", [&]<class T>() {
    using C = compute_t<T>;
    const T* px = x.data<T>();
    const T *pw = w.defined() ? w.data<T>() : nullptr, *pb = c.defined() ? c.data<T>() : nullptr;
    T* to = y.data<T>();
    C *mu = center ? means.data<C>() : nullptr, *s = scale.data<C>();
    parallel_for(count, rows_per_chunk(n), [&](int64_t begin, int64_t end) {
      for (int64_t r = begin; r < end; ++r) {
        const RowStats<C> stats =
            normalize_row<T>(px + r * n, pw, pb, to + r * n, n, C(eps), center);
        if (center) mu[r] = stats.shift, mu[count + r] = stats.rest;
        s[r] = stats.scale;
      }
    });
  });
  return y;
}

void check_norm(const char* op, const Tensor& x, const Tensor& weight, const Tensor& bias) {
  check(x.defined() && x.dim() >= 1 && is_floating(x.dtype()), op, "got ", x,
        "; accepted: a floating-point tensor with at least 1 dimension");
  for (const Tensor* t : {&weight, &bias})
    check(!t->defined() || (t->shape() == Shape{x.size(-1)} && t->dtype() == x.dtype()), op,
          "weight or bias ", *t, " for x ", x, "; it must be [D] of the same dtype");
  for (const Tensor* t : {&weight, &bias})
    if (t->defined()) check_same_device(op, {&x, t});
}

// The operands of one call and its statistics.
struct Operands {
  Operands(const Tensor& given, const Tensor& weight, const Tensor& bias, bool center)
      : x(plain(given)), w(plain(weight)), c(plain(bias)) {
    const int64_t n = x.size(-1), count = n == 0 ? 0 : x.numel() / n;
    const TensorOptions wide{.dtype = compute_type(x.dtype()), .device = x.device()};
    if (center) means = empty({2, count}, wide);
    scale = empty({count}, wide);
  }
  Tensor x, w, c, means, scale;
};

Tensor normalize(const char* op, const Tensor& x, const Tensor& weight, const Tensor& bias,
                 double eps, bool center) {
  check_norm(op, x, weight, bias);
  const Operands o(x, weight, bias, center);
  const Tensor y = o.x.device().is_cpu() ? normalize_cpu(o.x, o.w, o.c, eps, o.means, o.scale)
                                         : cuda::norm(o.x, o.w, o.c, eps, o.means, o.scale);
  // Gradients: scale · (ĝ − x̂ · mean(ĝ · x̂) [− mean(ĝ)]) with ĝ = g · weight, Σ g · x̂, Σ g.
  return record(
      op, {x, weight, bias}, y,
      [=, means = o.means, scale = o.scale, x = Saved(x), w = Saved(weight)](Backward& b) {
        return grad_enabled()
                   ? composed_backward(b.grad(), x(), w(), eps, means, b.needs(1), b.needs(2))
                   : fused_backward(b, x(), w(), means, scale);
      });
}

// Returns the sum and its norm; on CUDA by one kernel, if rows fit in its registers.
Tensors add_normalize(const char* op, const Tensor& x, const Tensor& residual, const Tensor& weight,
                      const Tensor& bias, const ResidualDropout& r, double eps, bool center) {
  check_norm(op, x, weight, bias);
  check(r.p >= 0 && r.p <= 1, op, "probability ", r.p, "; accepted: 0 to 1");
  check(x.dtype() == residual.dtype() && x.shape() == residual.shape(), op, "got ", x,
        " and the residual ", residual, "; accepted: one shape and one dtype");
  check_same_device(op, {&x, &residual});
  if (x.device().is_cpu() || x.numel() == 0 || !cuda::norm_takes_branch(x.size(-1), x.dtype())) {
    const Tensor sum = r.p > 0 ? dropout_add(x, residual, r.p, r.key) : residual + x;
    return {sum, normalize(op, sum, weight, bias, eps, center)};
  }
  const Operands o(x, weight, bias, center);
  const Tensor sum = empty_like(o.x);
  const DropoutRule rule(r.p);
  const auto branch = [=](const Tensor& onto, const Tensor& to) {
    return cuda::ResidualBranch{onto, to, rule.below, rule.factor, r.key};
  };
  const Tensor y = cuda::norm(o.x, o.w, o.c, eps, o.means, o.scale, branch(residual.detach(), sum));
  const auto backward = [=, w = Saved(weight), means = o.means, scale = o.scale](Backward& b) {
    const Tensor s = b.output(0);
    const bool drops = r.p > 0 && b.needs(0);
    if (grad_enabled()) {
      const Tensors g = composed_backward(b.grad(1), s, w(), eps, means, b.needs(2), b.needs(3));
      const Tensor d = b.reached(0) ? b.grad(0) + g[0] : g[0];
      return Tensors{drops ? dropout(d, r.p, r.key) : d, d, g[1], g[2]};
    }
    const Tensor g = b.grad(1).contiguous(), of_branch = drops ? empty_like(s) : Tensor(),
                 onto = b.reached(0) ? b.grad(0).contiguous() : Tensor();
    const cuda::NormGradients to = cuda::norm_backward(
        {s, plain(w()), means, scale}, g, onto, b.needs(2), b.needs(3), branch({}, of_branch));
    return Tensors{drops ? of_branch : to.dx, to.dx, to.dw, to.db};
  };
  // Gradients: dropout(d, p, key) and d, with d the gradient of s: its own plus that of the norm's
  // x; those of weight and bias are the norm's.
  return record(op, {x, residual, weight, bias}, {sum, y}, backward, Keep::outputs);
}

}  // namespace

Tensor layer_norm(const Tensor& x, const Tensor& weight, const Tensor& bias, double eps) {
  return normalize("layer_norm", x, weight, bias, eps, true);
}

Tensor rms_norm(const Tensor& x, const Tensor& weight, double eps) {
  return normalize("rms_norm", x, weight, {}, eps, false);
}

Tensors add_layer_norm(const Tensor& x, const Tensor& residual, ResidualDropout options,
                       const Tensor& weight, const Tensor& bias, double eps) {
  return add_normalize("add_layer_norm", x, residual, weight, bias, options, eps, true);
}

Tensors add_rms_norm(const Tensor& x, const Tensor& residual, ResidualDropout options,
                     const Tensor& weight, double eps) {
  return add_normalize("add_rms_norm", x, residual, weight, {}, options, eps, false);
}

}  // namespace stretto
