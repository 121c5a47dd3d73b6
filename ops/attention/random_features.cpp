// Random features, composed and fused.
//
// Symbols as in random_features.h: ω_w are the W rows of the projection, x' = x·D^(−1/4), and F is
// the number of features. ε is RandomFeatureOptions::epsilon.
//
// The fused implementation processes tiles of up to 256 rows of one head. The forward pass writes
// u_w = ω_w·x' to the memory of the features and computes one scalar `shift` per row. It then
// computes in place
//
//     y = exp(±u − shift) / √F [, or cosines and sines, or relu(u) + ε]
//
// The backward pass needs y, its gradient g and x, but no exponentials. With p = g·y,
//
//     du = ±p                             dshift = −Σ p
//     dx' = Σ_w du_w ω_w + (dshift) x'    if shift = ½|x'|²
//     dx' = Σ_w du_w ω_w                  if shift is the maximum of u (hyperbolic: of |u|)
//
// In the last case dshift is first added to du_w at the row's maximum, or subtracted if that u_w is
// negative. The forward pass then saves, instead of x, one integer per row: the index of the
// maximum together with the sign of u there. Generalized features save x and recompute u instead of
// saving y. Each sum runs over one row only, so results do not depend on the number of threads.
//
// In bf16, u and du are f32 rows of the tile. Features are rounded once, when they are stored; du
// is rounded only as the operand of a bf16 product. If the CPU multiplies bf16, the projection is
// split into a sum of two bf16 matrices, so that u has f32 precision.
#include "ops/attention/random_features.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "autograd/tape.h"
#include "core/formulas/elementwise_math.h"
#include "core/gemm/gemm.h"
#include "cuda/attention/random_features.h"
#include "ops/attention/heads.h"
#include "ops/attention/random_features_device.h"
#include "ops/create.h"
#include "ops/elementwise.h"
#include "ops/indexing.h"
#include "ops/loops.h"
#include "ops/matmul.h"
#include "ops/reduce.h"
#include "ops/rows.h"

namespace stretto {
namespace {

using Kind = RandomFeatureKind;
using Stabilizer = FeatureStabilizer;
constexpr const char* op = "random_features";

bool in_pairs(Kind kind) { return kind == Kind::hyperbolic || kind == Kind::trigonometric; }

// The largest exponent of features that need no divisor.
double log_limit(DType type) { return type == f64 ? 600.0 : 60.0; }

// The logarithm of the divisor of FeatureStabilizer::bound: f64, without dimensions.
Tensor log_bound(const Tensor& projection, DType type) {
  const Tensor largest = max(sum(square(projection.detach().to(f64)), {1}));
  return clamp(largest / 2.0 - log_limit(type), 0.0, INFINITY);
}

Tensor composed(const Tensor& x, const Tensor& projection, const RandomFeatureOptions& o) {
  const Tensor scaled = x * std::pow(double(x.size(3)), -0.25);
  const Tensor u = linear(scaled, projection);
  if (o.kind == Kind::generalized) return relu(u) + o.epsilon;

  const bool pairs = in_pairs(o.kind), own_max = o.stabilizer == Stabilizer::own_max;
  const auto rows = double(projection.size(0));
  auto half = [&] { return sum(square(scaled), {3}, true) * 0.5; };  // ½|x'|²
  if (o.kind == Kind::trigonometric) {
    const Tensor waves = cat({cos(u), sin(u)}, 3) / std::sqrt(rows);
    return own_max ? waves : waves * exp(half());
  }
  // |u|. At u = 0 its derivative is +1, the derivative for the + feature.
  auto size = [&] { return pairs ? where(lt(u, 0), -u, u) : u; };
  Tensor shift = own_max ? max(size(), 3, true) : half();
  if (o.stabilizer == Stabilizer::bound)
    shift = shift + log_bound(projection, x.dtype()).to(x.dtype());
  // Subtracted separately: added to a large `shift`, log_root would be lost in rounding.
  const double log_root = std::log(pairs ? 2 * rows : rows) / 2;
  return exp(pairs ? cat({u - shift - log_root, -u - shift - log_root}, 3) : u - shift - log_root);
}

// ---------------------------------------------------------------------------- row kernels

template <class T>
using Index = std::conditional_t<sizeof(T) == 4, int32_t, int64_t>;

// The largest u (or |u|) of a row and its place: the index i or, if |u| was searched and u_i < 0,
// −1 − i.
template <class T>
struct Top {
  T value;
  Index<T> place;
};
template <class T>
constexpr Index<T> no_place = std::numeric_limits<Index<T>>::min();

// max u or (`absolute`) max |u|; NaN if any u is NaN.
template <bool absolute, class T>
[[gnu::always_inline]] inline Top<T> top_of(const T* u, int64_t n) {
  auto at = [&](int64_t i) {
    const T size = absolute ? math::abs(u[i]) : u[i];
    return size == size ? size : std::numeric_limits<T>::quiet_NaN();
  };
  const T top = rows::max<T>(n, at);
  auto first = Index<T>(n - 1);
  for (int64_t i = 0; i < n; ++i) {
    const Index<T> here = at(i) == top ? Index<T>(i) : Index<T>(n - 1);
    first = here < first ? here : first;
  }
  return {top, absolute && u[first] < 0 ? -1 - first : first};
}

// ½|x'|².
template <class T, class S>
[[gnu::always_inline]] inline T half_square(const S* x, int64_t d, double scale) {
  return T(0.5 * scale * scale *
           rows::sum<double>(d, [&](int64_t i) { return double(T(x[i])) * double(T(x[i])); }));
}

// The settings of one call of random_features(), common to all rows.
struct Setting {
  Kind kind;
  Stabilizer stabilizer;
  double epsilon, scale, log_bound;
  int64_t d, w;

  bool pairs() const { return in_pairs(kind); }
  bool exponential() const { return kind == Kind::positive || kind == Kind::hyperbolic; }
  bool keeps_place() const { return exponential() && stabilizer == Stabilizer::own_max; }
  int64_t features() const { return pairs() ? 2 * w : w; }
  // True if the features have a factor that depends on ½|x'|².
  bool has_half() const { return kind != Kind::generalized && stabilizer != Stabilizer::own_max; }
  // True if the backward pass needs x: for the gradient of ½|x'|², or to recompute u.
  bool keeps_x() const { return has_half() || kind == Kind::generalized; }
};

// Computes the features y of one row in place: on entry the first w elements of y are u. Returns
// Top::place if keeps_place().
template <class T, class S>
STRETTO_CLONES Index<T> features_of_row(const Setting& s, const S* x, T* y) {
  const int64_t w = s.w;
  if (s.kind == Kind::generalized) {
    const T epsilon = T(s.epsilon);
    for (int64_t i = 0; i < w; ++i) y[i] = elementwise::Relu::value(y[i]) + epsilon;
    return 0;
  }
  T shift = s.has_half() ? half_square<T>(x, s.d, s.scale) : T(0);
  if (s.kind == Kind::trigonometric) {
    const T factor = (s.has_half() ? math::exp(shift) : T(1)) / T(std::sqrt(double(w)));
    T* sines = y + w;
    for (int64_t i = 0; i < w; ++i) {
      const T u = y[i];
      y[i] = math::cos(u) * factor;
      sines[i] = math::sin(u) * factor;
    }
    return 0;
  }
  const bool pairs = s.kind == Kind::hyperbolic;
  Top<T> top{};
  if (!s.has_half()) {
    top = pairs ? top_of<true>(y, w) : top_of<false>(y, w);
    shift = top.value;
  }
  if (s.stabilizer == Stabilizer::bound) shift += T(s.log_bound);
  const T log_root = T(std::log(double(s.features())) / 2);
  if (pairs)
    for (int64_t i = 0; i < w; ++i) y[w + i] = math::exp(-y[i] - shift - log_root);
  for (int64_t i = 0; i < w; ++i) y[i] = math::exp(y[i] - shift - log_root);
  return top.place;
}

// Computes du from y and g; for generalized features from g and from u, which `du` holds on
// entry. Returns the factor of x' in dx', which is dshift for exponential features. `place` is
// the result of features_of_row.
template <class T, class S>
STRETTO_CLONES T gradient_of_row(const Setting& s, const S* y, const S* g, Index<T> place, T* du) {
  const int64_t w = s.w;
  const S *y2 = y + w, *g2 = g + w;
  switch (s.kind) {
    case Kind::generalized:
      for (int64_t i = 0; i < w; ++i) du[i] = T(g[i]) * elementwise::heaviside(du[i]);
      return T(0);
    case Kind::trigonometric:
      for (int64_t i = 0; i < w; ++i) du[i] = T(g2[i]) * T(y[i]) - T(g[i]) * T(y2[i]);
      return rows::sum<T>(2 * w, [&](int64_t i) { return T(g[i]) * T(y[i]); });
    case Kind::hyperbolic:
      for (int64_t i = 0; i < w; ++i) du[i] = T(g[i]) * T(y[i]) - T(g2[i]) * T(y2[i]);
      break;
    case Kind::positive:
      for (int64_t i = 0; i < w; ++i) du[i] = T(g[i]) * T(y[i]);
      break;
  }
  const T dshift = -rows::sum<T>(s.features(), [&](int64_t i) { return T(g[i]) * T(y[i]); });
  if (s.has_half()) return dshift;
  if (place >= 0)
    du[place] += dshift;
  else if (place != no_place<T>)
    du[-1 - place] -= dshift;
  return T(0);
}

// ---------------------------------------------------------------------------- fused

// Tiles of rows of one head: about 32k elements of x and features together.
struct FeatureTiles {
  int64_t heads, length, rows, per_head;

  FeatureTiles(const Tensor& x, const Setting& s)
      : heads(x.size(1)),
        length(x.size(2)),
        rows(std::clamp<int64_t>(rows_per_chunk(s.d + s.features()), 16, 256)),
        per_head((length + rows - 1) / rows),
        count_(x.size(0) * heads * per_head) {}

  // f(batch entry, head, first row, rows)
  template <class F>
  void each(F&& f) const {
    parallel_for(count_, 1, [&](int64_t begin, int64_t end) {
      for (int64_t at = begin; at < end; ++at) {
        const int64_t head = at / per_head, i0 = at % per_head * rows;
        f(head / heads, head % heads, i0, std::min(rows, length - i0));
      }
    });
  }

 private:
  int64_t count_;
};

// Products of the projection ω [W, D] with rows of dtype S; results are T.
template <class S>
class Projection {
  using T = compute_t<S>;

 public:
  Projection(const Setting& s, const Tensor& w, int64_t length) : s_(s), w_(w) {
    // Products of few rows gain nothing from bf16 tiles.
    if (std::is_same_v<S, T> || !has_bf16_products() || length < 16) return;
    high_ = w.to(bf16);
    low_ = (w - high_.to(f32)).to(bf16);
  }

  // u [n, W] = D^(−1/4) x ωᵀ.
  void multiply(int64_t n, MatrixRef<S> x, T* u, int64_t ldu) const {
    product(n, s_.w, s_.d, x, true, u, ldu);
  }
  // dx [n, D] = D^(−1/4) du ω.
  void multiply_back(int64_t n, const T* du, T* dx, int64_t lddx) const {
    if constexpr (std::is_same_v<S, T>) {
      product(n, s_.d, s_.w, {du, s_.w}, false, dx, lddx);
    } else if (!high_.defined()) {
      gemm(n, s_.d, s_.w, T(s_.scale), {du, s_.w}, {w_.data<T>(), s_.d}, T(0), dx, lddx);
    } else {
      const Tensor rounded = empty({n, s_.w}, {.dtype = bf16, .device = cpu});
      rows::convert_row(du, rounded.data<S>(), n * s_.w);
      product(n, s_.d, s_.w, {rounded.data<S>(), s_.w}, false, dx, lddx);
    }
  }

 private:
  void product(int64_t m, int64_t n, int64_t k, MatrixRef<S> a, bool transposed, T* c,
               int64_t ldc) const {
    if constexpr (std::is_same_v<S, T>) {
      gemm(m, n, k, T(s_.scale), a, {w_.data<T>(), s_.d, transposed}, T(0), c, ldc);
    } else if (high_.defined()) {
      gemm(m, n, k, T(s_.scale), a, {high_.data<S>(), s_.d, transposed}, T(0), c, ldc);
      gemm(m, n, k, T(s_.scale), a, {low_.data<S>(), s_.d, transposed}, T(1), c, ldc);
    } else {
      const Tensor wide = empty({m, k}, {.dtype = f32, .device = cpu});
      for (int64_t i = 0; i < m; ++i)
        rows::convert_row(a.data + i * a.ld, wide.data<T>() + i * k, k);
      gemm(m, n, k, T(s_.scale), {wide.data<T>(), k}, {w_.data<T>(), s_.d, transposed}, T(0), c,
           ldc);
    }
  }

  const Setting& s_;
  const Tensor w_;
  Tensor high_, low_;
};

// Result rows that are computed in T: in place if S is T, else in a separate tile, which store()
// converts to S.
template <class S>
struct TileRows {
  using T = compute_t<S>;
  static constexpr bool apart = !std::is_same_v<S, T>;

  TileRows(S* where, int64_t ld_where, int64_t n, int64_t width)
      : to(where), ld_to(ld_where), rows(n), columns(width) {
    if constexpr (apart) {
      memory = empty({n, width}, {.dtype = dtype_of<T>(), .device = cpu});
      data = memory.template data<T>(), ld = width;
    } else {
      data = where, ld = ld_where;
    }
  }
  void store() const {
    if constexpr (apart)
      for (int64_t i = 0; i < rows; ++i) rows::convert_row(data + i * ld, to + i * ld_to, columns);
  }

  S* to;
  int64_t ld_to, rows, columns, ld = 0;
  Tensor memory;
  T* data = nullptr;
};

template <class S>
void forward(const Setting& s, const Tensor& x_, const Tensor& projection, const Tensor& y_,
             const Tensor& places) {
  using T = compute_t<S>;
  const Heads<S> x = heads_of<S>(x_), y = heads_of<S>(y_);
  const Projection<S> w(s, projection, x_.size(2));
  Index<T>* place = places.defined() ? places.data<Index<T>>() : nullptr;
  const FeatureTiles tiles(x_, s);
  tiles.each([&](int64_t b, int64_t h, int64_t i0, int64_t n) {
    const TileRows<S> u(y.at(b, h, i0), y.row, n, s.features());
    w.multiply(n, {x.at(b, h, i0), x.row}, u.data, u.ld);
    for (int64_t i = 0; i < n; ++i) {
      const Index<T> found = features_of_row(s, x.at(b, h, i0 + i), u.data + i * u.ld);
      if (place) place[(b * tiles.heads + h) * tiles.length + i0 + i] = found;
    }
    u.store();
  });
}

// x is undefined unless it was saved; y is undefined for generalized features.
template <class S>
void backward(const Setting& s, const Tensor& x_, const Tensor& projection, const Tensor& y_,
              const Tensor& places, const Tensor& grad, const Tensor& into) {
  using T = compute_t<S>;
  const auto x = heads_of<S>(x_), y = heads_of<S>(y_), g = heads_of<S>(grad),
             dx = heads_of<S>(into);
  const Projection<S> w(s, projection, into.size(2));
  const Index<T>* place = places.defined() ? places.data<Index<T>>() : nullptr;
  const FeatureTiles tiles(into, s);
  tiles.each([&](int64_t b, int64_t h, int64_t i0, int64_t n) {
    const Tensor du = empty({n, s.w}, {.dtype = dtype_of<T>(), .device = cpu}),
                 factors = empty({n}, options_of(du));
    T *to = du.data<T>(), *factor = factors.data<T>();
    if (s.kind == Kind::generalized) w.multiply(n, {x.at(b, h, i0), x.row}, to, s.w);
    for (int64_t i = 0; i < n; ++i) {
      const int64_t row = (b * tiles.heads + h) * tiles.length + i0 + i;
      const S* const features = s.kind == Kind::generalized ? nullptr : y.at(b, h, i0 + i);
      factor[i] = gradient_of_row(s, features, g.at(b, h, i0 + i), place ? place[row] : no_place<T>,
                                  to + i * s.w);
    }
    const TileRows<S> result(dx.at(b, h, i0), dx.row, n, s.d);
    w.multiply_back(n, to, result.data, result.ld);
    for (int64_t i = 0; s.has_half() && i < n; ++i)
      rows::add_scaled(x.at(b, h, i0 + i), factor[i] * T(s.scale * s.scale),
                       result.data + i * result.ld, s.d);
    result.store();
  });
}

// The derivative of `shift` with respect to u, [B, H, L, W]: 1 or −1 at the place of each row's
// maximum, else 0.
template <class T>
Tensor signs_at(const Setting& s, const Tensor& y, const Tensor& places) {
  Tensor signs = zeros({y.size(0), y.size(1), y.size(2), s.w}, options_of(y));
  const Index<T>* place = places.data<Index<T>>();
  T* row = signs.data<T>();
  for (int64_t i = 0; i < places.numel(); ++i, row += s.w) {
    if (place[i] >= 0)
      row[place[i]] = 1;
    else if (place[i] != no_place<T>)
      row[-1 - place[i]] = -1;
  }
  return signs;
}

// The backward pass in differentiable ops, for settings that do not save x.
Tensor gradient_from_features(const Setting& s, const Tensor& w, const Tensor& y,
                              const Tensor& places, const Tensor& g) {
  const auto first = [&](const Tensor& x) { return x.slice(3, 0, s.w); };
  const auto second = [&](const Tensor& x) { return x.slice(3, s.w); };
  Tensor du;
  if (s.kind == Kind::trigonometric) {
    du = second(g) * first(y) - first(g) * second(y);
  } else {
    const Tensor p = g * y;
    const Tensor signs =
        y.dtype() == f64 ? signs_at<double>(s, y, places) : signs_at<float>(s, y, places);
    du = (s.pairs() ? first(p) - second(p) : p) - sum(p, {3}, true) * signs;
  }
  return matmul(du, w) * s.scale;
}

Tensor fused(const Tensor& x, const Tensor& projection, const RandomFeatureOptions& o) {
  // For a single position, as in generation, heads are treated as rows.
  if (x.size(2) == 1 && x.size(1) > 1)
    return fused(x.transpose(1, 2), projection, o).transpose(1, 2);
  const DType type = x.dtype(), wide = compute_type(type);
  const Setting s{.kind = o.kind,
                  .stabilizer = o.stabilizer,
                  .epsilon = o.epsilon,
                  .scale = std::pow(double(x.size(3)), -0.25),
                  .log_bound = o.stabilizer == Stabilizer::bound
                                   ? log_random_feature_bound(projection, type)
                                   : 0,
                  .d = x.size(3),
                  .w = projection.size(0)};
  const Tensor w = projection.detach().contiguous(), rows = rows_contiguous(x);
  const Tensor y = empty({x.size(0), x.size(1), x.size(2), s.features()}, options_of(x));
  Tensor places;
  if (s.keeps_place() && recording({x}))
    places = empty({x.numel() / s.d}, {.dtype = type == f64 ? i64 : i32, .device = cpu});
  dispatch_floating(type, op, [&]<class T>() { forward<T>(s, rows, w, y, places); });
  const bool again = s.kind == Kind::generalized;
  // Gradients: dx' = Σ_w du_w ω_w + (dshift) x', du = ±g · y, dshift = −Σ g · y.
  return record(
      op, {x}, y,
      [s, o, places, again, shape = x.shape(), type, wide, x = s.keeps_x() ? Saved(x) : Saved(),
       w = Saved(w)](Backward& b) {
        if (grad_enabled() && !s.keeps_x())
          return Tensors{
              gradient_from_features(s, w(), b.output().to(wide), places, b.grad().to(wide))
                  .to(type)};
        if (grad_enabled())
          return composed_gradient(
              b, [&](const Tensors& in) { return composed(in[0].to(wide), w(), o).to(type); },
              {x()});
        const Tensor from = rows_contiguous(x()), g = rows_contiguous(b.grad());
        const Tensor features = again ? Tensor() : rows_contiguous(b.output());
        const Tensor dx = heads_inside(shape[0], shape[1], shape[2], shape[3], type);
        dispatch_floating(type, op,
                          [&]<class T>() { backward<T>(s, from, w(), features, places, g, dx); });
        return Tensors{dx};
      },
      again ? Keep::nothing : Keep::outputs);
}

}  // namespace

Tensor random_features(const Tensor& x, const Tensor& projection, RandomFeatureOptions options) {
  check(x.dim() == 4 && projection.dim() == 2 && is_floating(x.dtype()) &&
            is_floating(projection.dtype()) && x.size(3) == projection.size(1) &&
            projection.numel() > 0,
        op, "x ", x, ", projection ", projection,
        "; accepted: floating-point x [B, H, L, D] and projection [W, D], W and D at least 1");
  check(std::isfinite(options.epsilon) && options.epsilon >= 0, op, "epsilon ", options.epsilon,
        "; must be 0 or more");
  check_same_device(op, {&x, &projection});
  const bool on_cpu = x.device().is_cpu(), fixed = !recording({projection});
  const bool fusible = fixed && (on_cpu || has_device_random_features(x, projection, options));
  if (options.implementation == Implementation::automatic)
    options.implementation = fusible ? Implementation::fused : Implementation::composed;
  const bool is_fused = options.implementation == Implementation::fused;
  check(!is_fused || fixed, op,
        "the fused implementation has no gradient for the projection, which requires one; use "
        "Implementation::composed");
  check(!is_fused || fusible, op, "no fused implementation for x ", x, ", projection ", projection,
        "; use Implementation::composed");
  const DType type = compute_type(x.dtype());
  const Tensor w = projection.to(type);
  if (is_fused && on_cpu) return fused(x, w, options);
  const auto plain = [w, type, options](const Tensor& in) {
    return composed(in.to(type), w, options).to(in.dtype());
  };
  if (!is_fused) return plain(x);
  const bool bounded = options.stabilizer == Stabilizer::bound;
  const Tensor bound = bounded ? cuda::random_feature_bound(w.detach(), log_limit(type)) : Tensor();
  return device_random_features(x, w, bound, options, plain);
}

}  // namespace stretto
