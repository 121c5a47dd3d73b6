// Random features, composed and fused.
//
// The fused form takes up to 256 rows of one head together. With u = ω·x' their product, written to
// where the features go, and `less` one number per row, forward is
//
//     y = exp(±u − less) / √F [, or cosines and sines, or relu(u) + ε]
//
// in place. Backward needs y, its gradient g and x, but no exponentials: with p = g·y,
//
//     du = ±p                             dless = −Σ p
//     dx' = Σ_w du_w ω_w + (dless) x'     where less = ½|x'|²
//     dx' = Σ_w du_w ω_w                  where less = max |u|, after du_w ± dless for that w
//
// which w that is, and the sign of its u, forward keeps in one integer per row, and not x.
// Generalised features compute u again instead of keeping y. No sum crosses a row: results do not
// depend on the number of threads.
#include "ops/attention/random_features.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "autograd/tape.h"
#include "core/gemm/gemm.h"
#include "ops/attention/heads.h"
#include "ops/create.h"
#include "ops/elementwise.h"
#include "ops/elementwise_math.h"
#include "ops/indexing.h"
#include "ops/loops.h"
#include "ops/matmul.h"
#include "ops/reduce.h"
#include "ops/rows.h"

namespace stretto {
namespace {

using Kind = RandomFeatureKind;
using Stabiliser = FeatureStabiliser;
constexpr const char* op = "random_features";

bool in_pairs(Kind kind) { return kind == Kind::hyperbolic || kind == Kind::trigonometric; }

// The logarithm of what `bound` divides by, one number in f64.
Tensor log_bound(const Tensor& projection, DType type) {
  const Tensor largest = max(sum(square(projection.detach().to(f64)), {1}));
  return clamp(largest / 2.0 - (type == f64 ? 600.0 : 60.0), 0.0, INFINITY);
}

Tensor composed(const Tensor& x, const Tensor& projection, const RandomFeatureOptions& o) {
  const Tensor scaled = x * std::pow(double(x.size(3)), -0.25);
  const Tensor u = linear(scaled, projection);
  if (o.kind == Kind::generalised) return relu(u) + o.epsilon;

  const bool pairs = in_pairs(o.kind), own_max = o.stabiliser == Stabiliser::own_max;
  const auto rows = double(projection.size(0));
  auto half = [&] { return sum(square(scaled), {3}, true) * 0.5; };  // ½|x'|²
  if (o.kind == Kind::trigonometric) {
    const Tensor waves = cat({cos(u), sin(u)}, 3) / std::sqrt(rows);
    return own_max ? waves : waves * exp(half());
  }
  Tensor less = own_max ? max(pairs ? abs(u) : u, 3, true) : half();
  if (o.stabiliser == Stabiliser::bound)
    less = less + log_bound(projection, x.dtype()).to(x.dtype());
  // Not part of `less`, where it would drown in large numbers.
  const double log_root = std::log(pairs ? 2 * rows : rows) / 2;
  return exp(pairs ? cat({u - less - log_root, -u - less - log_root}, 3) : u - less - log_root);
}

// ---------------------------------------------------------------------------- row kernels

template <class T>
using Index = std::conditional_t<sizeof(T) == 4, int32_t, int64_t>;

// Where a row's largest u is, and the sign that its gradient gets there: i for +, −1 − i for −.
template <class T>
struct Top {
  T value;
  Index<T> place;
};
template <class T>
constexpr Index<T> no_place = std::numeric_limits<Index<T>>::min();  // |u| = 0 has no slope

// max u, or max |u|; NaN where any u is.
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
  if (!absolute || u[first] > 0) return {top, first};
  return {top, u[first] < 0 ? -1 - first : no_place<T>};
}

// ½|x'|².
template <class T>
[[gnu::always_inline]] inline T half_square(const T* x, int64_t d, double scale) {
  return T(0.5 * scale * scale *
           rows::sum<double>(d, [&](int64_t i) { return double(x[i]) * double(x[i]); }));
}

// What all rows have in common.
struct Setting {
  Kind kind;
  Stabiliser stabiliser;
  double epsilon, scale, log_bound;
  int64_t d, w;

  bool pairs() const { return in_pairs(kind); }
  bool exponential() const { return kind == Kind::positive || kind == Kind::hyperbolic; }
  bool keeps_place() const { return exponential() && stabiliser == Stabiliser::own_max; }
  int64_t features() const { return pairs() ? 2 * w : w; }
  // Has a ½|x'|².
  bool has_half() const { return kind != Kind::generalised && stabiliser != Stabiliser::own_max; }
  // Backward needs x: for that, or to compute u again.
  bool keeps_x() const { return has_half() || kind == Kind::generalised; }
};

// The features of one row, whose first w numbers are u. Returns Top::place where that is kept.
template <class T>
STRETTO_CLONES Index<T> features_of_row(const Setting& s, const T* x, T* y) {
  const int64_t w = s.w;
  if (s.kind == Kind::generalised) {
    const T epsilon = T(s.epsilon);
    for (int64_t i = 0; i < w; ++i) y[i] = elementwise::Relu::value(y[i]) + epsilon;
    return 0;
  }
  T less = s.has_half() ? half_square(x, s.d, s.scale) : T(0);
  if (s.kind == Kind::trigonometric) {
    const T factor = (s.has_half() ? math::exp(less) : T(1)) / T(std::sqrt(double(w)));
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
    less = top.value;
  }
  if (s.stabiliser == Stabiliser::bound) less += T(s.log_bound);
  const T log_root = T(std::log(double(s.features())) / 2);
  if (pairs)
    for (int64_t i = 0; i < w; ++i) y[w + i] = math::exp(-y[i] - less - log_root);
  for (int64_t i = 0; i < w; ++i) y[i] = math::exp(y[i] - less - log_root);
  return top.place;
}

// From y and g to du, in place of u for generalised features; returns dless, or what stands before
// x'. `place` is what forward returned.
template <class T>
STRETTO_CLONES T gradient_of_row(const Setting& s, const T* y, const T* g, Index<T> place, T* du) {
  const int64_t w = s.w;
  const T *y2 = y + w, *g2 = g + w;
  switch (s.kind) {
    case Kind::generalised:
      for (int64_t i = 0; i < w; ++i) du[i] = g[i] * elementwise::step(du[i]);
      return T(0);
    case Kind::trigonometric:
      for (int64_t i = 0; i < w; ++i) du[i] = g2[i] * y[i] - g[i] * y2[i];
      return rows::sum<T>(2 * w, [&](int64_t i) { return g[i] * y[i]; });
    case Kind::hyperbolic:
      for (int64_t i = 0; i < w; ++i) du[i] = g[i] * y[i] - g2[i] * y2[i];
      break;
    case Kind::positive:
      for (int64_t i = 0; i < w; ++i) du[i] = g[i] * y[i];
      break;
  }
  const T less = -rows::sum<T>(s.features(), [&](int64_t i) { return g[i] * y[i]; });
  if (s.has_half()) return less;
  if (place >= 0)
    du[place] += less;
  else if (place != no_place<T>)
    du[-1 - place] -= less;
  return T(0);
}

// dx += factor x.
template <class T>
STRETTO_CLONES void add_scaled(T* dx, const T* x, T factor, int64_t n) {
  for (int64_t i = 0; i < n; ++i) dx[i] += factor * x[i];
}

// ---------------------------------------------------------------------------- fused

// Rows of one head that are taken together: of x and the features about 32k numbers.
struct Tiles {
  int64_t heads, length, rows, per_head;

  Tiles(const Tensor& x, const Setting& s)
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

template <class T>
void forward(const Setting& s, const Tensor& x_, const Tensor& projection, const Tensor& y_,
             const Tensor& places) {
  const Heads<T> x = heads_of<T>(x_), y = heads_of<T>(y_);
  const MatrixRef<T> w{projection.data<T>(), s.d, true};
  Index<T>* place = places.defined() ? places.data<Index<T>>() : nullptr;
  const Tiles tiles(x_, s);
  tiles.each([&](int64_t b, int64_t h, int64_t i0, int64_t n) {
    gemm(n, s.w, s.d, T(s.scale), {x.at(b, h, i0), x.row}, w, T(0), y.at(b, h, i0), y.row);
    for (int64_t i = i0; i < i0 + n; ++i) {
      const Index<T> found = features_of_row(s, x.at(b, h, i), y.at(b, h, i));
      if (place) place[(b * tiles.heads + h) * tiles.length + i] = found;
    }
  });
}

// x is undefined unless it is kept, y for generalised features.
template <class T>
void backward(const Setting& s, const Tensor& x_, const Tensor& projection, const Tensor& y_,
              const Tensor& places, const Tensor& grad, const Tensor& into) {
  const auto x = heads_of<T>(x_), y = heads_of<T>(y_), g = heads_of<T>(grad),
             dx = heads_of<T>(into);
  const T* w = projection.data<T>();
  const Index<T>* place = places.defined() ? places.data<Index<T>>() : nullptr;
  const Tiles tiles(into, s);
  tiles.each([&](int64_t b, int64_t h, int64_t i0, int64_t n) {
    const Tensor du = empty({n, s.w}, {.dtype = dtype_of<T>(), .device = cpu}),
                 factors = empty({n}, options_of(du));
    T *to = du.data<T>(), *factor = factors.data<T>();
    if (s.kind == Kind::generalised)
      gemm(n, s.w, s.d, T(s.scale), {x.at(b, h, i0), x.row}, {w, s.d, true}, T(0), to, s.w);
    for (int64_t i = 0; i < n; ++i) {
      const int64_t row = (b * tiles.heads + h) * tiles.length + i0 + i;
      factor[i] = gradient_of_row(s, y ? y.at(b, h, i0 + i) : nullptr, g.at(b, h, i0 + i),
                                  place ? place[row] : no_place<T>, to + i * s.w);
    }
    gemm(n, s.d, s.w, T(s.scale), {to, s.w}, {w, s.d}, T(0), dx.at(b, h, i0), dx.row);
    if (!s.has_half()) return;
    for (int64_t i = 0; i < n; ++i)
      add_scaled(dx.at(b, h, i0 + i), x.at(b, h, i0 + i), factor[i] * T(s.scale * s.scale), s.d);
  });
}

// Where the gradient of `less` goes, [B, H, L, W]: 1 or −1 at the place of each row, else 0.
template <class T>
Tensor signs_at(const Setting& s, const Tensor& y, const Tensor& places) {
  const Tensor signs = zeros({y.size(0), y.size(1), y.size(2), s.w}, options_of(y));
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

// Backward in differentiable ops where x is not kept.
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
  // Single positions, as in generation: heads are rows as well.
  if (x.size(2) == 1 && x.size(1) > 1)
    return fused(x.transpose(1, 2), projection, o).transpose(1, 2);
  const DType type = x.dtype();
  const Setting s{
      .kind = o.kind,
      .stabiliser = o.stabiliser,
      .epsilon = o.epsilon,
      .scale = std::pow(double(x.size(3)), -0.25),
      .log_bound = o.stabiliser == Stabiliser::bound ? log_bound(projection, type).item() : 0,
      .d = x.size(3),
      .w = projection.size(0)};
  const Tensor w = projection.detach().contiguous(), rows = rows_contiguous(x);
  const Tensor y = empty({x.size(0), x.size(1), x.size(2), s.features()}, options_of(x));
  Tensor places;
  if (s.keeps_place() && recording({x}))
    places = empty({x.numel() / s.d}, {.dtype = type == f64 ? i64 : i32, .device = cpu});
  type == f64 ? forward<double>(s, rows, w, y, places) : forward<float>(s, rows, w, y, places);
  const bool again = s.kind == Kind::generalised;
  // Gradients: dx' = Σ_w du_w ω_w + (dless) x', du = ±g · y, dless = −Σ g · y.
  return record(
      op, {x}, y,
      [s, o, places, again, shape = x.shape(), type, x = s.keeps_x() ? Saved(x) : Saved(),
       w = Saved(w)](Backward& b) {
        if (grad_enabled() && !s.keeps_x())
          return Tensors{gradient_from_features(s, w(), b.output(), places, b.grad())};
        if (grad_enabled())
          return composed_gradient(b, [&](const Tensors& in) { return composed(in[0], w(), o); },
                                   {x()});
        const Tensor from = rows_contiguous(x()), g = rows_contiguous(b.grad());
        const Tensor features = again ? Tensor() : rows_contiguous(b.output());
        const Tensor dx = heads_inside(shape[0], shape[1], shape[2], shape[3], type, false);
        type == f64 ? backward<double>(s, from, w(), features, places, g, dx)
                    : backward<float>(s, from, w(), features, places, g, dx);
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
        "; accepted: floating x [B, H, L, D] and projection [W, D], W and D at least 1");
  check(std::isfinite(options.epsilon) && options.epsilon >= 0, op, "epsilon ", options.epsilon,
        "; must be 0 or more");
  check_same_device(op, {&x, &projection});
  const bool fusible = x.device().is_cpu() && !recording({projection});
  if (options.form == Form::automatic) options.form = fusible ? Form::fused : Form::composed;
  const bool is_fused = options.form == Form::fused;
  check(!is_fused || x.device().is_cpu(), op, "no fused form for CUDA tensors; use Form::composed");
  check(!is_fused || fusible, op,
        "the fused form has no gradient for the projection, which requires one; use "
        "Form::composed");
  const DType type = x.dtype() == f64 ? f64 : f32;
  const Tensor wide = x.to(type), w = projection.to(type);
  return (is_fused ? fused(wide, w, options) : composed(wide, w, options)).to(x.dtype());
}

}  // namespace stretto
