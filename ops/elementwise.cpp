// Elementwise ops on the CPU. Order: unary functions, scalars, functions of two tensors, changes in
// place. Comparisons and selection by mask are in elementwise_masks.cpp.
#include "ops/elementwise.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "autograd/tape.h"
#include "cuda/kernels.h"
#include "ops/create.h"
#include "ops/elementwise_loops.h"
#include "ops/elementwise_math.h"
#include "ops/view.h"

namespace stretto {

namespace em = elementwise;

namespace {

// ---------------------------------------------------------------------------- unary functions

Tensor floating(const Tensor& x) { return is_floating(x.dtype()) ? x : x.to(f32); }

template <class T, class F>
STRETTO_CLONES void map_run(const T* x, T* y, int64_t n, F f) {
  for (int64_t i = 0; i < n; ++i) y[i] = T(f(compute_t<T>(x[i])));
}

template <class T, class F>
STRETTO_CLONES void map2_run(const T* a, const T* b, T* y, int64_t n, F f) {
  for (int64_t i = 0; i < n; ++i) y[i] = T(f(compute_t<T>(a[i]), compute_t<T>(b[i])));
}

// The vector code of math::sin and math::cos is for numbers below 2^31. What lies beyond, f(x) of
// the standard library gives, times g where there is one.
template <class T>
STRETTO_CLONES bool any_far(const T* x, int64_t n) {
  int far = 0;
  for (int64_t i = 0; i < n; ++i) far |= math::abs(compute_t<T>(x[i])) >= compute_t<T>(0x1p31);
  return far != 0;
}

template <class T>
void mend_far(const T* x, const T* g, T* y, int64_t n, double (*f)(double)) {
  if (std::is_same_v<T, double> || !any_far(x, n)) return;
  for (int64_t i = 0; i < n; ++i) {
    const float v = float(x[i]);
    if (std::fabs(v) >= 0x1p31f) y[i] = T(float(f(double(v))) * (g ? float(g[i]) : 1.0f));
  }
}

// y = f(x) over a contiguous copy of x; `far` is f again, for sines.
template <class F>
Tensor map(const char* op, const Tensor& input, F f, double (*far)(double) = nullptr) {
  check_cpu(op, {&input});
  const Tensor x = input.detach().contiguous();
  Tensor y = empty_like(x);
  dispatch_floating(x.dtype(), op, [&](auto tag) {
    using T = typename decltype(tag)::type;
    const T* from = x.data<T>();
    T* to = y.data<T>();
    parallel_for(x.numel(), 16384, [&](int64_t begin, int64_t end) {
      map_run(from + begin, to + begin, end - begin, f);
      if (far) mend_far<T>(from + begin, nullptr, to + begin, end - begin, far);
    });
  });
  return y;
}

// g · F′, in one pass; `at` is x or y, whichever the derivative reads.
template <class F>
Tensor chain_rule(const char* op, const Tensor& at, const Tensor& grad) {
  check_cpu(op, {&at, &grad});
  const Tensor x = at.detach().contiguous(), g = grad.contiguous();
  Tensor y = empty_like(x);
  dispatch_floating(x.dtype(), op, [&](auto tag) {
    using T = typename decltype(tag)::type;
    using C = compute_t<T>;
    const T *px = x.data<T>(), *pg = g.data<T>();
    T* to = y.data<T>();
    parallel_for(x.numel(), 16384, [&](int64_t begin, int64_t end) {
      map2_run(px + begin, pg + begin, to + begin, end - begin,
               [](C v, C slope) { return F::derivative(v, v) * slope; });
      if constexpr (requires { F::far; })
        mend_far(px + begin, pg + begin, to + begin, end - begin, F::far_derivative);
    });
  });
  return y;
}

template <class F>
Tensor unary(const char* op, const Tensor& input) {
  const Tensor x = floating(input);
  double (*far)(double) = nullptr;
  if constexpr (requires { F::far; }) far = F::far;
  Tensor y = map(
      op, x, [](auto v) { return F::value(v); }, far);
  constexpr bool from_x = F::needs == em::Needs::x;
  return record(
      op, {x}, y,
      [op, saved = from_x ? Saved(x) : Saved()](Backward& b) {
        const Tensor at = from_x ? saved() : b.output();
        return Tensors{grad_enabled() ? b.grad() * F::derivative(at, at)
                                      : chain_rule<F>(op, at, b.grad())};
      },
      from_x ? Keep::nothing : Keep::outputs);
}

}  // namespace

Tensor exp(const Tensor& x) { return unary<em::Exp>("exp", x); }
Tensor log(const Tensor& x) { return unary<em::Log>("log", x); }
Tensor sin(const Tensor& x) { return unary<em::Sin>("sin", x); }
Tensor cos(const Tensor& x) { return unary<em::Cos>("cos", x); }
Tensor tanh(const Tensor& x) { return unary<em::Tanh>("tanh", x); }
Tensor sigmoid(const Tensor& x) { return unary<em::Sigmoid>("sigmoid", x); }
Tensor erf(const Tensor& x) { return unary<em::Erf>("erf", x); }
Tensor relu(const Tensor& x) { return unary<em::Relu>("relu", x); }
Tensor gelu(const Tensor& x) { return unary<em::Gelu>("gelu", x); }
Tensor gelu_tanh(const Tensor& x) { return unary<em::GeluTanh>("gelu_tanh", x); }
Tensor silu(const Tensor& x) { return unary<em::Silu>("silu", x); }
Tensor softplus(const Tensor& x) { return unary<em::Softplus>("softplus", x); }
Tensor square(const Tensor& x) { return unary<em::Square>("square", x); }
Tensor sqrt(const Tensor& x) { return unary<em::Sqrt>("sqrt", x); }
Tensor rsqrt(const Tensor& x) { return unary<em::Rsqrt>("rsqrt", x); }

namespace {

// Integers keep their dtype through f, which is computed in i64.
template <class F>
Tensor map_any(const char* op, const Tensor& input, F f) {
  if (is_floating(input.dtype())) return map(op, input, f);
  check_cpu(op, {&input});
  const Tensor x = input.to(i64).contiguous(), y = empty_like(x);
  const int64_t* from = x.data<int64_t>();
  int64_t* to = y.data<int64_t>();
  parallel_for(x.numel(), 16384, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) to[i] = f(from[i]);
  });
  return y.to(input.dtype());
}

}  // namespace

Tensor abs(const Tensor& x) {
  Tensor y = map_any("abs", x, [](auto v) {
    if constexpr (std::is_integral_v<decltype(v)>)
      return v < 0 ? math::wrapping_sub(decltype(v)(0), v) : v;
    else
      return em::Abs::value(v);
  });
  return record("abs", {x}, y,
                [x = Saved(x)](Backward& b) { return Tensors{b.grad() * sign(x())}; });
}

Tensor step(const Tensor& x) {
  return map_any("step", x, [](auto v) { return em::step(v); });
}

Tensor sign(const Tensor& x) {
  return map_any("sign", x, [](auto v) { return em::sign(v); });
}

// ---------------------------------------------------------------------------- scalars

namespace {

// The CUDA kernels of arithmetic are for floating types.
void check_floating_on_cuda(const char* op, const Tensor& x) {
  check(x.device().is_cpu() || is_floating(x.dtype()), op, "no CUDA kernel yet for ", x.dtype(),
        "; move the tensor to the CPU: x.to(cpu)");
}

// The dtype of x ∘ c: x's own, but f32 where an integer tensor meets what is no i64.
Tensor for_scalar(const Tensor& x, double c) {
  if (is_floating(x.dtype())) return x;
  if (!has_value(i64, c)) return x.to(f32);
  return x.dtype() == boolean ? x.to(i64) : x;
}

}  // namespace

Tensor add(const Tensor& input, double c) {
  const Tensor x = for_scalar(input, c);
  check_floating_on_cuda("add", x);
  Tensor y = x.device().is_cuda()
                 ? cuda::add_scalar(x.detach().contiguous(), c)
                 : map_any("add", x, [c](auto v) { return em::Add::value(v, decltype(v)(c)); });
  return record("add", {x}, y, [](Backward& b) { return Tensors{b.grad()}; });
}

Tensor mul(const Tensor& input, double c) {
  const Tensor x = for_scalar(input, c);
  check_floating_on_cuda("mul", x);
  Tensor y = x.device().is_cuda()
                 ? cuda::mul_scalar(x.detach().contiguous(), c)
                 : map_any("mul", x, [c](auto v) { return em::Mul::value(v, decltype(v)(c)); });
  return record("mul", {x}, y, [c](Backward& b) { return Tensors{b.grad() * c}; });
}

Tensor neg(const Tensor& x) { return mul(x, -1.0); }

Tensor div(const Tensor& input, double c) {
  const Tensor x = floating(input);
  Tensor y = x.device().is_cuda() ? cuda::div_scalar(x.detach().contiguous(), c)
                                  : map("div", x, [c](auto v) { return v / decltype(v)(c); });
  return record("div", {x}, y, [c](Backward& b) { return Tensors{b.grad() / c}; });
}

Tensor div(double c, const Tensor& input) {
  const Tensor x = floating(input);
  Tensor y = map("div", x, [c](auto v) { return decltype(v)(c) / v; });
  return record(
      "div", {x}, y,
      [x = Saved(x)](Backward& b) { return Tensors{-(b.grad() * (b.output() / x()))}; },
      Keep::outputs);
}

Tensor pow(const Tensor& input, double p) {
  const Tensor x = floating(input);
  Tensor y = map("pow", x, [p](auto v) { return decltype(v)(std::pow(v, decltype(v)(p))); });
  return record("pow", {x}, y, [p, x = Saved(x)](Backward& b) {
    if (p == 0) return Tensors{zeros_like(x())};
    return Tensors{b.grad() * (pow(x(), p - 1) * p)};
  });
}

namespace {

// To the whole numbers of x's dtype that lie between the bounds.
Tensor clamp_integers(const Tensor& x, double low, double high) {
  int64_t least = 0, most = 0;
  dispatch(x.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    if constexpr (std::is_integral_v<T>) {
      using Limits = std::numeric_limits<T>;
      least = std::max(convert<int64_t>(std::ceil(low)), int64_t(Limits::min()));
      most = std::min(convert<int64_t>(std::floor(high)), int64_t(Limits::max()));
    }
  });
  check(least <= most && low < 0x1p63 && high >= -0x1p63, "clamp", "no ", x.dtype(),
        " lies between ", low, " and ", high);
  return map_any("clamp", x, [=](auto v) {
    using T = decltype(v);
    return std::clamp(v, T(least), T(most));
  });
}

}  // namespace

Tensor clamp(const Tensor& x, double low, double high) {
  check(low <= high, "clamp", "low ", low, " is above high ", high);
  if (!is_floating(x.dtype())) return clamp_integers(x, low, high);
  Tensor y = map("clamp", x, [=](auto v) { return em::clamp(v, low, high); });
  return record("clamp", {x}, y, [=, x = Saved(x)](Backward& b) {
    return Tensors{
        where(logical_and(ge(x(), low), le(x(), high)), b.grad(), scalar(0, options_of(x())))};
  });
}

// ---------------------------------------------------------------------------- two tensors

namespace {

template <class F>
Tensor arithmetic(const char* op, const Tensor& a, const Tensor& b) {
  const Shape shape = broadcast_shapes(op, a.shape(), b.shape());
  check_cpu(op, {&a, &b});
  Tensor y = empty(shape, options_of(a));
  dispatch(a.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    if constexpr (!std::is_same_v<T, bool>)
      binary_loop<T, T>(a, b, y, [](auto u, auto v) { return F::value(u, v); });
  });
  return y;
}

template <class F>
Tensor arithmetic(const char* op, cuda::Binary kernel, const Tensor& a, const Tensor& b) {
  if (a.device().is_cpu()) return arithmetic<F>(op, a, b);
  broadcast_shapes(op, a.shape(), b.shape());
  check_floating_on_cuda(op, a);
  return cuda::binary(kernel, a.detach(), b.detach());
}

}  // namespace

Tensor add(const Tensor& x, const Tensor& z) {
  const auto [a, b] = promoted("add", x, z);
  return record("add", {a, b}, arithmetic<em::Add>("add", cuda::Binary::add, a, b),
                [sa = a.shape(), sb = b.shape()](Backward& g) {
                  return Tensors{g.needs(0) ? sum_to(g.grad(), sa) : Tensor(),
                                 g.needs(1) ? sum_to(g.grad(), sb) : Tensor()};
                });
}

Tensor sub(const Tensor& x, const Tensor& z) {
  const auto [a, b] = promoted("sub", x, z);
  return record("sub", {a, b}, arithmetic<em::Sub>("sub", cuda::Binary::sub, a, b),
                [sa = a.shape(), sb = b.shape()](Backward& g) {
                  return Tensors{g.needs(0) ? sum_to(g.grad(), sa) : Tensor(),
                                 g.needs(1) ? -sum_to(g.grad(), sb) : Tensor()};
                });
}

Tensor mul(const Tensor& x, const Tensor& z) {
  const auto [a, b] = promoted("mul", x, z);
  return record("mul", {a, b}, arithmetic<em::Mul>("mul", cuda::Binary::mul, a, b),
                [a = Saved(a), b = Saved(b)](Backward& g) {
                  return Tensors{g.needs(0) ? sum_to(g.grad() * b(), a().shape()) : Tensor(),
                                 g.needs(1) ? sum_to(g.grad() * a(), b().shape()) : Tensor()};
                });
}

Tensor div(const Tensor& x, const Tensor& z) {
  const auto [a, b] = promoted("div", x, z, true);
  return record("div", {a, b}, arithmetic<em::Div>("div", cuda::Binary::div, a, b),
                [a = Saved(a), b = Saved(b)](Backward& g) {
                  const Tensor ga = g.grad() / b();
                  return Tensors{g.needs(0) ? sum_to(ga, a().shape()) : Tensor(),
                                 g.needs(1) ? sum_to(-(ga * (a() / b())), b().shape()) : Tensor()};
                });
}

namespace {

// Gradient of maximum and minimum: all to the winner, halves on ties.
Tensors winner_takes(Backward& g, const Tensor& a, const Tensor& b, const Tensor& a_wins) {
  const Tensor share = where(a_wins, ones_like(g.grad()), zeros_like(g.grad()));
  const Tensor part = where(eq(a, b), full(share.shape(), 0.5, options_of(share)), share);
  return {sum_to(g.grad() * part, a.shape()), sum_to(g.grad() * (1.0 - part), b.shape())};
}

}  // namespace

Tensor maximum(const Tensor& x, const Tensor& z) {
  const auto [a, b] = promoted("maximum", x, z);
  return record("maximum", {a, b}, arithmetic<em::Maximum>("maximum", a, b),
                [a = Saved(a), b = Saved(b)](Backward& g) {
                  return winner_takes(g, a(), b(), gt(a(), b()));
                });
}

Tensor minimum(const Tensor& x, const Tensor& z) {
  const auto [a, b] = promoted("minimum", x, z);
  return record("minimum", {a, b}, arithmetic<em::Minimum>("minimum", a, b),
                [a = Saved(a), b = Saved(b)](Backward& g) {
                  return winner_takes(g, a(), b(), lt(a(), b()));
                });
}

// ---------------------------------------------------------------------------- in place

namespace {

template <class T>
STRETTO_CLONES void add_run(T* y, int64_t sy, const T* x, int64_t sx, int64_t n,
                            compute_t<T> scale) {
  using C = compute_t<T>;
  if (sy == 1 && sx == 1) {
    for (int64_t i = 0; i < n; ++i) y[i] = T(C(y[i]) + scale * C(x[i]));
  } else {
    for (int64_t i = 0; i < n; ++i) y[i * sy] = T(C(y[i * sy]) + scale * C(x[i * sx]));
  }
}

}  // namespace

Tensor Tensor::add_(const Tensor& other, double scale) const {
  check_in_place("add_", *this);
  check_same_device("add_", {this, &other});
  check(is_floating(dtype()), "add_", "needs a floating tensor, got ", *this);
  const Tensor from =
      broadcast_to(readable_while_writing(*this, other.detach().to(dtype())), shape());
  if (device().is_cuda()) {
    cuda::add_scaled(*this, from, scale);
  } else {
    const StridedLoop<2> loop(shape(), {strides(), from.strides()});
    dispatch_floating(dtype(), "add_", [&](auto tag) {
      using T = typename decltype(tag)::type;
      T* y = data<T>();
      const T* x = from.data<T>();
      loop.run([&](auto at, int64_t n) {
        add_run(y + at[0], loop.inner[0], x + at[1], loop.inner[1], n, compute_t<T>(scale));
      });
    });
  }
  ++storage().version;
  return *this;
}

Tensor Tensor::mul_(double factor) const {
  check_in_place("mul_", *this);
  NoGrad guard;
  const Tensor product = mul(*this, factor);
  check(is_floating(product.dtype()) == is_floating(dtype()), "mul_", *this, " times ", factor,
        " is no longer whole; convert it first");
  return copy_(product);
}

}  // namespace stretto
