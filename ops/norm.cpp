#include "ops/norm.h"

#include "autograd/tape.h"
#include "cuda/norm.h"
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
STRETTO_CLONES RowStats<compute_t<T>> normalise_row(const T* x, const T* w, const T* b,
                                                    T* __restrict y, int64_t n, compute_t<T> eps,
                                                    bool centre) {
  using C = compute_t<T>;
  const C shift = centre ? rows::sum<C>(n, [&](int64_t i) { return C(x[i]); }) / C(n) : C(0);
  const C power = rows::sum<C>(n, [&](int64_t i) {
    const C d = C(x[i]) - shift;
    return d * d;
  });
  const C scale = C(1) / math::sqrt(power / C(n) + eps);
  for (int64_t begin = 0, end; begin < n; begin = end) {
    end = rows::fetch_next(n, begin, x + n);
    if (w && b) {
      for (int64_t i = begin; i < end; ++i) y[i] = T((C(x[i]) - shift) * scale * C(w[i]) + C(b[i]));
    } else if (w) {
      for (int64_t i = begin; i < end; ++i) y[i] = T((C(x[i]) - shift) * scale * C(w[i]));
    } else {
      for (int64_t i = begin; i < end; ++i)
        y[i] = T((C(x[i]) - shift) * scale + (b ? C(b[i]) : C(0)));
    }
  }
  return {shift, scale};
}

// dx = scale · (g' − mean g' − x̂ · mean(g' x̂)), g' = g·w; dw += g x̂ and db += g where wanted, which
// is asked for at compile time: the loop then reads and writes each operand once. dx may be g.
template <class T, bool with_w, bool with_b>
STRETTO_CLONES void normalise_row_backward(const T* x, const T* w, const T* g, T* dx,
                                           compute_t<T>* __restrict dw, compute_t<T>* __restrict db,
                                           int64_t n, RowStats<compute_t<T>> s, bool centre) {
  using C = compute_t<T>;
  const auto unit = [&](int64_t i) { return (C(x[i]) - s.shift) * s.scale; };
  const auto slope = [&](int64_t i) { return C(g[i]) * C(w[i]); };
  const C mean_g = centre ? rows::sum<C>(n, slope) / C(n) : C(0);
  const C mean_gx = rows::sum<C>(n, [&](int64_t i) { return slope(i) * unit(i); }) / C(n);
  for (int64_t begin = 0, end; begin < n; begin = end) {
    end = rows::fetch_next(n, begin, x + n, g + n);
#pragma GCC ivdep
    for (int64_t i = begin; i < end; ++i) {
      const C u = unit(i), arrived = C(g[i]);
      if constexpr (with_w) dw[i] += arrived * u;
      if constexpr (with_b) db[i] += arrived;
      dx[i] = T(s.scale * (arrived * C(w[i]) - mean_g - u * mean_gx));
    }
  }
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

// dx, in g's place where nothing else holds it; dw and db where wanted.
Tensor backward_cpu(const Tensor& x, const Tensor& w, const Tensor& g, const Tensor& shift,
                    const Tensor& scale, bool want_dw, bool want_db, Tensor& dw, Tensor& db) {
  const int64_t n = x.size(-1), count = scale.numel(), chunk = 64;
  const bool centre = shift.defined();
  const Tensor weight = w.defined() ? w : ones({n}, options_of(x));
  Tensor dx = in_place_or_new(g), sums_w, sums_b;
  const TensorOptions wide = options_of(scale);
  const int64_t chunks = (count + chunk - 1) / chunk;
  if (want_dw) sums_w = zeros({chunks, n}, wide);
  if (want_db) sums_b = zeros({chunks, n}, wide);
  dispatch_floating(x.dtype(), "norm", [&](auto tag) {
    using T = typename decltype(tag)::type;
    using C = compute_t<T>;
    const T *px = x.data<T>(), *pg = g.data<T>();
    const T* pw = weight.data<T>();
    const C *mu = centre ? shift.data<C>() : nullptr, *s = scale.data<C>();
    T* to = dx.data<T>();
    C *pdw = want_dw ? sums_w.data<C>() : nullptr, *pdb = want_db ? sums_b.data<C>() : nullptr;
    const auto row = want_dw   ? want_db ? normalise_row_backward<T, true, true>
                                         : normalise_row_backward<T, true, false>
                       : want_db ? normalise_row_backward<T, false, true>
                               : normalise_row_backward<T, false, false>;
    parallel_for(chunks, 1, [&](int64_t begin, int64_t end) {
      for (int64_t r = begin * chunk; r < std::min(count, end * chunk); ++r)
        row(px + r * n, pw, pg + r * n, to + r * n, pdw ? pdw + r / chunk * n : nullptr,
            pdb ? pdb + r / chunk * n : nullptr, n, {mu ? mu[r] : C(0), s[r]}, centre);
    });
  });
  if (want_dw) dw = add_up(sums_w, x);
  if (want_db) db = add_up(sums_b, x);
  return dx;
}

Tensors fused_backward(Backward& b, const Tensor& x, const Tensor& w, const Tensor& shift,
                       const Tensor& scale) {
  const auto run = x.device().is_cpu() ? backward_cpu : cuda::norm_backward;
  const Tensor g = b.take_grad();
  Tensor dw, db, copy;
  const Tensor dx = run(x.detach().contiguous(), w.defined() ? w.detach().contiguous() : Tensor(),
                        contiguous(g, copy), shift, scale, b.needs(1), b.needs(2), dw, db);
  return {dx, dw, db};
}

// y; writes shift, where it is defined, and scale.
Tensor normalise_cpu(const Tensor& x, const Tensor& w, const Tensor& c, double eps,
                     const Tensor& shift, const Tensor& scale) {
  Tensor y = empty_like(x);
  const int64_t n = x.size(-1);
  const bool centre = shift.defined();
  dispatch_floating(x.dtype(), "norm", [&](auto tag) {
    using T = typename decltype(tag)::type;
    using C = compute_t<T>;
    const T* px = x.data<T>();
    const T *pw = w.defined() ? w.data<T>() : nullptr, *pb = c.defined() ? c.data<T>() : nullptr;
    T* to = y.data<T>();
    C *mu = centre ? shift.data<C>() : nullptr, *s = scale.data<C>();
    parallel_for(scale.numel(), rows_per_chunk(n), [&](int64_t begin, int64_t end) {
      for (int64_t r = begin; r < end; ++r) {
        const RowStats<C> stats =
            normalise_row<T>(px + r * n, pw, pb, to + r * n, n, C(eps), centre);
        if (centre) mu[r] = stats.shift;
        s[r] = stats.scale;
      }
    });
  });
  return y;
}

Tensor normalise(const char* op, const Tensor& x, const Tensor& weight, const Tensor& bias,
                 double eps, bool centre) {
  check(x.dim() >= 1 && is_floating(x.dtype()), op, "got ", x,
        "; needs a floating tensor of at least 1 dimension");
  for (const Tensor* t : {&weight, &bias})
    check(!t->defined() || (t->shape() == Shape{x.size(-1)} && t->dtype() == x.dtype()), op,
          "weight or bias ", *t, " for x ", x, "; it must be [D] of the same dtype");
  for (const Tensor* t : {&weight, &bias})
    if (t->defined()) check_same_device(op, {&x, t});
  const Tensor from = x.detach().contiguous();
  const Tensor w = weight.defined() ? weight.detach().contiguous() : Tensor();
  const Tensor c = bias.defined() ? bias.detach().contiguous() : Tensor();
  const int64_t n = x.size(-1), count = n == 0 ? 0 : x.numel() / n;
  const TensorOptions wide{.dtype = x.dtype() == f64 ? f64 : f32, .device = x.device()};
  const Tensor shift = centre ? empty({count}, wide) : Tensor(), scale = empty({count}, wide);
  Tensor y = on_device(from, normalise_cpu, cuda::norm, w, c, eps, shift, scale);
  // Gradients: scale · (ĝ − x̂ · mean(ĝ · x̂) [− mean(ĝ)]) with ĝ = g · weight, Σ g · x̂, Σ g.
  return record(op, {x, weight, bias}, y, [=, x = Saved(x), w = Saved(weight)](Backward& b) {
    return grad_enabled() ? composed_backward(b, x(), w(), eps, centre)
                          : fused_backward(b, x(), w(), shift, scale);
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
