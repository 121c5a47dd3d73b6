#include "ops/norm.h"

#include "autograd/tape.h"
#include "ops/create.h"
#include "ops/elementwise.h"
#include "ops/loops.h"
#include "ops/reduce.h"
#include "ops/rows.h"
#include "ops/view.h"

namespace stretto {
namespace {

// Layer norm subtracts the mean, RMS norm does not; otherwise they are one function.
// Row statistics: x̂ = (x − shift) · scale.
template <class C>
struct RowStats {
  C shift, scale;
};

template <class T>
STRETTO_CLONES RowStats<compute_t<T>> normalise_row(const T* x, const T* w, const T* b, T* y,
                                                    int64_t n, compute_t<T> eps, bool centre) {
  using C = compute_t<T>;
  const C shift = centre ? rows::sum<C>(n, [&](int64_t i) { return C(x[i]); }) / C(n) : C(0);
  const C power = rows::sum<C>(n, [&](int64_t i) {
    const C d = C(x[i]) - shift;
    return d * d;
  });
  const C scale = C(1) / math::sqrt(power / C(n) + eps);
  if (w && b) {
    for (int64_t i = 0; i < n; ++i) y[i] = T((C(x[i]) - shift) * scale * C(w[i]) + C(b[i]));
  } else if (w) {
    for (int64_t i = 0; i < n; ++i) y[i] = T((C(x[i]) - shift) * scale * C(w[i]));
  } else {
    for (int64_t i = 0; i < n; ++i) y[i] = T((C(x[i]) - shift) * scale + (b ? C(b[i]) : C(0)));
  }
  return {shift, scale};
}

// dx = scale · (g' − mean g' − x̂ · mean(g' x̂)), g' = g·w; dw += g x̂ and db += g where wanted.
template <class T>
STRETTO_CLONES void normalise_row_backward(const T* x, const T* w, const T* g, T* dx,
                                           compute_t<T>* dw, compute_t<T>* db, int64_t n,
                                           RowStats<compute_t<T>> s, bool centre) {
  using C = compute_t<T>;
  auto slope = [&](int64_t i) { return w ? C(g[i]) * C(w[i]) : C(g[i]); };
  auto unit = [&](int64_t i) { return (C(x[i]) - s.shift) * s.scale; };
  const C mean_g = centre ? rows::sum<C>(n, [&](int64_t i) { return slope(i); }) / C(n) : C(0);
  const C mean_gx = rows::sum<C>(n, [&](int64_t i) { return slope(i) * unit(i); }) / C(n);
  for (int64_t i = 0; i < n; ++i) dx[i] = T(s.scale * (slope(i) - mean_g - unit(i) * mean_gx));
  if (dw)
    for (int64_t i = 0; i < n; ++i) dw[i] += C(g[i]) * unit(i);
  if (db)
    for (int64_t i = 0; i < n; ++i) db[i] += C(g[i]);
}

// The same backward in differentiable ops, for gradients of gradients.
Tensors composed_backward(Backward& b, const Tensor& x, const Tensor& w, double eps, bool centre) {
  const Tensor& g = b.grad();
  const Tensor d = centre ? x - mean(x, {-1}, true) : x;
  const Tensor scale = rsqrt(mean(square(d), {-1}, true) + eps);
  const Tensor unit = d * scale, slope = w.defined() ? g * w : g;
  Tensor dx = slope - unit * mean(slope * unit, {-1}, true);
  if (centre) dx = dx - mean(slope, {-1}, true);
  const Shape last{x.size(-1)};
  return {scale * dx, b.needs(1) ? sum_to(g * unit, last) : Tensor(),
          b.needs(2) ? sum_to(g, last) : Tensor()};
}

// Sum over the chunks' partial rows [chunks, n], in order.
Tensor add_up(const Tensor& partial, const Tensor& like) {
  return sum(partial, {0}).to(like.dtype());
}

Tensors fused_backward(Backward& b, const Tensor& x, const Tensor& w, const Tensor& shift,
                       const Tensor& scale, bool centre) {
  const int64_t n = x.size(-1), count = scale.numel(), chunk = 64;
  const Tensor from = x.detach().contiguous(), g = b.grad().contiguous();
  const Tensor factors = w.defined() ? w.detach().contiguous() : Tensor();
  Tensor dx = empty_like(from), dw, db;
  const TensorOptions wide{.dtype = scale.dtype()};
  const int64_t chunks = (count + chunk - 1) / chunk;
  if (b.needs(1)) dw = zeros({chunks, n}, wide);
  if (b.needs(2)) db = zeros({chunks, n}, wide);
  dispatch_floating(x.dtype(), "norm", [&](auto tag) {
    using T = typename decltype(tag)::type;
    using C = compute_t<T>;
    const T *px = from.data<T>(), *pg = g.data<T>();
    const T* pw = factors.defined() ? factors.data<T>() : nullptr;
    const C *mu = centre ? shift.data<C>() : nullptr, *s = scale.data<C>();
    T* to = dx.data<T>();
    C *pdw = dw.defined() ? dw.data<C>() : nullptr, *pdb = db.defined() ? db.data<C>() : nullptr;
    parallel_for(chunks, 1, [&](int64_t begin, int64_t end) {
      for (int64_t r = begin * chunk; r < std::min(count, end * chunk); ++r)
        normalise_row_backward<T>(
            px + r * n, pw, pg + r * n, to + r * n, pdw ? pdw + r / chunk * n : nullptr,
            pdb ? pdb + r / chunk * n : nullptr, n, {mu ? mu[r] : C(0), s[r]}, centre);
    });
  });
  return {dx, dw.defined() ? add_up(dw, x) : Tensor(), db.defined() ? add_up(db, x) : Tensor()};
}

Tensor normalise(const char* op, const Tensor& x, const Tensor& weight, const Tensor& bias,
                 double eps, bool centre) {
  check(x.dim() >= 1 && is_floating(x.dtype()), op, "got ", x,
        "; needs a floating tensor of at least 1 dimension");
  for (const Tensor* t : {&weight, &bias})
    check(!t->defined() || (t->shape() == Shape{x.size(-1)} && t->dtype() == x.dtype()), op,
          "weight or bias ", *t, " for x ", x, "; it must be [D] of the same dtype");
  check_cpu(op, {&x, &weight, &bias});
  const Tensor from = x.detach().contiguous();
  const Tensor w = weight.defined() ? weight.detach().contiguous() : Tensor();
  const Tensor c = bias.defined() ? bias.detach().contiguous() : Tensor();
  Tensor y = empty_like(from);
  const int64_t n = x.size(-1), count = n == 0 ? 0 : x.numel() / n;
  const TensorOptions wide{.dtype = x.dtype() == f64 ? f64 : f32};
  Tensor shift = empty({centre ? count : 0}, wide), scale = empty({count}, wide);
  dispatch_floating(x.dtype(), op, [&](auto tag) {
    using T = typename decltype(tag)::type;
    using C = compute_t<T>;
    const T* px = from.data<T>();
    const T *pw = w.defined() ? w.data<T>() : nullptr, *pb = c.defined() ? c.data<T>() : nullptr;
    T* to = y.data<T>();
    C *mu = shift.data<C>(), *s = scale.data<C>();
    parallel_for(count, rows_per_chunk(n), [&](int64_t begin, int64_t end) {
      for (int64_t r = begin; r < end; ++r) {
        const RowStats<C> stats =
            normalise_row<T>(px + r * n, pw, pb, to + r * n, n, C(eps), centre);
        if (centre) mu[r] = stats.shift;
        s[r] = stats.scale;
      }
    });
  });
  // Gradients: scale · (ĝ − x̂ · mean(ĝ · x̂) [− mean(ĝ)]) with ĝ = g · weight, Σ g · x̂, Σ g.
  return record(op, {x, weight, bias}, y, [=, x = Saved(x), w = Saved(weight)](Backward& b) {
    return grad_enabled() ? composed_backward(b, x(), w(), eps, centre)
                          : fused_backward(b, x(), w(), shift, scale, centre);
  });
}

}  // namespace

Tensor layer_norm(const Tensor& x, const Tensor& weight, const Tensor& bias, double eps) {
  return normalise("layer_norm", x, weight, bias, eps, true);
}

Tensor rms_norm(const Tensor& x, const Tensor& weight, double eps) {
  return normalise("rms_norm", x, weight, {}, eps, false);
}

}  // namespace stretto
