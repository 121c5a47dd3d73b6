// Elementwise ops, in this order: unary functions, scalars, functions of two tensors, in-place ops.
// Comparisons and selection by mask are in elementwise_masks.cpp.
#include "ops/elementwise.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "autograd/tape.h"
#include "cuda/elementwise.h"
#include "ops/create.h"
#include "ops/elementwise_loops.h"
#include "ops/elementwise_map.h"
#include "ops/in_place.h"
#include "ops/view.h"
#include "ops/widened.h"

namespace stretto {

namespace em = elementwise;

namespace {

// ---------------------------------------------------------------------------- unary functions

Tensor floating(const char* op, const Tensor& x) {
  check_defined(op, x);
  return is_floating(x.dtype()) ? x : x.to(f32);
}

// A unary function: its kernels, and its derivative as a differentiable expression.
struct Unary {
  const char* op;
  bool from_x;  // the derivative reads x, not y
  em::Map map;
  em::Slope slope;
  Tensor (*on_cuda)(const Tensor& x);
  Tensor (*slope_on_cuda)(const Tensor& at, const Tensor& g);
  Tensor (*derivative)(const Tensor& at);
};

template <class F>
constexpr Unary unary_of(const char* op) {
  Unary f{op,
          F::needs == em::Needs::x,
          em::map_of<em::Alone<F>>(),
          em::slope_of<F>(),
          [](const Tensor& x) { return cuda::unary(F(), x); },
          [](const Tensor& at, const Tensor& g) { return cuda::chain_rule(F(), at, g); },
          [](const Tensor& at) { return F::derivative(at, at); }};
  if constexpr (requires { F::far; }) f.map.far = F::far, f.slope.far = F::far_derivative;
  return f;
}

Tensor unary(const Unary& f, const Tensor& input) {
  const Tensor x = floating(f.op, input);
  Tensor y = on_device(
      x.detach(), [&](const Tensor& v) { return em::run_map(f.map, v); }, f.on_cuda);
  return record(
      f.op, {x}, y,
      [&f, saved = f.from_x ? Saved(x) : Saved()](Backward& b) {
        const Tensor at = f.from_x ? saved() : b.output();
        if (grad_enabled()) return Tensors{b.grad() * f.derivative(at)};
        return Tensors{on_device(
            at.detach(),
            [&f](const Tensor& v, const Tensor& g) { return em::run_slope(f.slope, v, g); },
            f.slope_on_cuda, b.take_grad())};
      },
      f.from_x ? Keep::nothing : Keep::outputs);
}

template <class F>
Tensor unary(const char* op, const Tensor& x) {
  static const Unary f = unary_of<F>(op);
  return unary(f, x);
}

}  // namespace

Tensor exp(const Tensor& x) { return unary<em::Exp>("exp", x); }
Tensor log(const Tensor& x) { return unary<em::Log>("log", x); }
Tensor log1p(const Tensor& x) { return unary<em::Log1p>("log1p", x); }
Tensor expm1(const Tensor& x) { return unary<em::Expm1>("expm1", x); }
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

template <class F>
Tensor map_integers(const Tensor& input, F f) {
  const Tensor x = input.contiguous();
  Tensor y = empty_like(x);
  const int64_t* from = x.data<int64_t>();
  int64_t* to = y.data<int64_t>();
  parallel_for(x.numel(), 16384, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) to[i] = f(from[i]);
  });
  return y;
}

// Computes y = F::value(x, c), on CUDA by kernel(x). Integers keep their dtype; F and the
// kernel compute in i64.
template <class F, class Kernel>
Tensor map_any(const Tensor& x, em::Numbers c, Kernel kernel) {
  if (is_floating(x.dtype()))
    return on_device(
        x.detach(), [&](const Tensor& v) { return em::run_map(em::map_of<F>(), v, c); }, kernel);
  return on_device(
             x.to(i64),
             [&](const Tensor& v) {
               return map_integers(v, [c](int64_t e) { return F::value(e, c); });
             },
             kernel)
      .to(x.dtype());
}

template <class F>
Tensor piecewise(const Tensor& x) {
  return map_any<em::Alone<F>>(x, {}, [](const Tensor& v) { return cuda::unary(F(), v); });
}

}  // namespace

Tensor abs(const Tensor& x) {
  return record("abs", {x}, piecewise<em::Abs>(x),
                [x = Saved(x)](Backward& b) { return Tensors{b.grad() * sign(x())}; });
}

Tensor heaviside(const Tensor& x) { return piecewise<em::Heaviside>(x); }
Tensor sign(const Tensor& x) { return piecewise<em::Sign>(x); }
Tensor floor(const Tensor& x) { return piecewise<em::Floor>(x); }
Tensor ceil(const Tensor& x) { return piecewise<em::Ceil>(x); }
Tensor trunc(const Tensor& x) { return piecewise<em::Trunc>(x); }
Tensor round(const Tensor& x) { return piecewise<em::Round>(x); }

// ---------------------------------------------------------------------------- scalars

namespace {

// F(x, c).
template <class F>
Tensor with_number(const Tensor& x, double c) {
  return map_any<em::WithNumber<F>>(x, {c},
                                    [c](const Tensor& v) { return cuda::binary(F(), v, c); });
}

}  // namespace

Tensor add(const Tensor& input, double c) {
  const Tensor x = for_scalar("add", input, c);
  Tensor y = with_number<em::Add>(x, c);
  return record("add", {x}, y, [](Backward& b) { return Tensors{b.grad()}; });
}

Tensor mul(const Tensor& input, double c) {
  const Tensor x = for_scalar("mul", input, c);
  Tensor y = with_number<em::Mul>(x, c);
  return record("mul", {x}, y, [c](Backward& b) { return Tensors{b.grad() * c}; });
}

Tensor neg(const Tensor& x) { return mul(x, -1.0); }

Tensor div(const Tensor& input, double c) {
  const Tensor x = floating("div", input);
  Tensor y = with_number<em::Div>(x, c);
  return record("div", {x}, y, [c](Backward& b) { return Tensors{b.grad() / c}; });
}

Tensor div(double c, const Tensor& input) {
  const Tensor x = floating("div", input);
  Tensor y = map_any<em::NumberWith<em::Div>>(
      x, {c}, [c](const Tensor& v) { return cuda::binary(em::Div(), c, v); });
  return record(
      "div", {x}, y,
      [x = Saved(x)](Backward& b) { return Tensors{-(b.grad() * (b.output() / x()))}; },
      Keep::outputs);
}

Tensor pow(const Tensor& input, double p) {
  const Tensor x = floating("pow", input);
  Tensor y = with_number<em::Pow>(x, p);
  return record("pow", {x}, y, [p, x = Saved(x)](Backward& b) {
    if (p == 0) return Tensors{zeros_like(x())};
    return Tensors{b.grad() * (pow(x(), p - 1) * p)};
  });
}

namespace {

// Clamps to the integers of x's dtype between the bounds.
Tensor clamp_integers(const Tensor& x, double low, double high) {
  int64_t least = 0, most = 0;
  dispatch(x.dtype(), [&]<class T>() {
    if constexpr (std::is_integral_v<T>) {
      using Limits = std::numeric_limits<T>;
      least = std::max(convert<int64_t>(std::ceil(low)), int64_t(Limits::min()));
      most = std::min(convert<int64_t>(std::floor(high)), int64_t(Limits::max()));
    }
  });
  check(least <= most && low < 0x1p63 && high >= -0x1p63, "clamp", "no ", x.dtype(),
        " lies between ", low, " and ", high);
  return on_device(
             x.to(i64),
             [=](const Tensor& v) {
               return map_integers(v, [=](int64_t e) { return std::clamp(e, least, most); });
             },
             [=](const Tensor& v) { return cuda::clamp(v, least, most); })
      .to(x.dtype());
}

}  // namespace

Tensor clamp(const Tensor& x, double low, double high) {
  check(low <= high, "clamp", "low ", low, " is above high ", high);
  if (!is_floating(x.dtype())) return clamp_integers(x, low, high);
  Tensor y = on_device(
      x.detach(),
      [=](const Tensor& v) {
        return em::run_map(em::map_of<em::Clamp>(), v, {low, high});
      },
      [=](const Tensor& v) { return cuda::clamp(v, low, high); });
  return record("clamp", {x}, y, [=, x = Saved(x)](Backward& b) {
    return Tensors{
        where(logical_and(ge(x(), low), le(x(), high)), b.grad(), scalar(0, options_of(x())))};
  });
}

// ---------------------------------------------------------------------------- two tensors

namespace {

template <class F>
Tensor arithmetic_cpu(const Tensor& a, const Tensor& b, const Shape& shape) {
  Tensor y = empty(shape, options_of(a));
  binary_loop(a, b, y, dispatch(a.dtype(), []<class T>() {
                using Number = std::conditional_t<std::is_same_v<T, bool>, int64_t, T>;
                return binary_run<Number, Number, F>();
              }));
  return y;
}

// Integer kernels compute in i64; narrower dtypes wrap to the same values.
template <class F>
Tensor arithmetic_cuda(const Tensor& a, const Tensor& b, const Shape&) {
  if (is_floating(a.dtype())) return cuda::binary(F(), a, b);
  return cuda::binary(F(), a.to(i64), b.to(i64)).to(a.dtype());
}

template <class F>
Tensor arithmetic(const char* op, const Tensor& a, const Tensor& b) {
  return on_device(a.detach(), arithmetic_cpu<F>, arithmetic_cuda<F>, b.detach(),
                   broadcast_shapes(op, a.shape(), b.shape()));
}

}  // namespace

Tensor add(const Tensor& x, const Tensor& z) {
  const auto [a, b] = promoted("add", x, z);
  return record("add", {a, b}, arithmetic<em::Add>("add", a, b),
                [sa = a.shape(), sb = b.shape()](Backward& g) {
                  return Tensors{g.needs(0) ? sum_to(g.grad(), sa) : Tensor(),
                                 g.needs(1) ? sum_to(g.grad(), sb) : Tensor()};
                });
}

Tensor sub(const Tensor& x, const Tensor& z) {
  const auto [a, b] = promoted("sub", x, z);
  return record("sub", {a, b}, arithmetic<em::Sub>("sub", a, b),
                [sa = a.shape(), sb = b.shape()](Backward& g) {
                  return Tensors{g.needs(0) ? sum_to(g.grad(), sa) : Tensor(),
                                 g.needs(1) ? -sum_to(g.grad(), sb) : Tensor()};
                });
}

Tensor mul(const Tensor& x, const Tensor& z) {
  const auto [a, b] = promoted("mul", x, z);
  return record("mul", {a, b}, arithmetic<em::Mul>("mul", a, b),
                [a = Saved(a), b = Saved(b)](Backward& g) {
                  return Tensors{g.needs(0) ? sum_to(g.grad() * b(), a().shape()) : Tensor(),
                                 g.needs(1) ? sum_to(g.grad() * a(), b().shape()) : Tensor()};
                });
}

Tensor div(const Tensor& x, const Tensor& z) {
  const auto [a, b] = promoted("div", x, z, true);
  return record("div", {a, b}, arithmetic<em::Div>("div", a, b),
                [a = Saved(a), b = Saved(b)](Backward& g) {
                  const Tensor ga = g.grad() / b();
                  return Tensors{g.needs(0) ? sum_to(ga, a().shape()) : Tensor(),
                                 g.needs(1) ? sum_to(-(ga * (a() / b())), b().shape()) : Tensor()};
                });
}

Tensor pow(const Tensor& x, const Tensor& z) {
  const auto [a, b] = promoted("pow", x, z, true);
  // Gradients: g · b · a^(b − 1), and 0 where b = 0; g · y · log(a), and 0 where a = 0 and b ≥ 0
  return record(
      "pow", {a, b}, arithmetic<em::Pow>("pow", a, b),
      [a = Saved(a), b = Saved(b)](Backward& g) {
        const Tensor one = scalar(1, options_of(g.grad())), zero = scalar(0, options_of(one));
        Tensors to(2);
        if (g.needs(0)) {
          const Tensor flat = eq(b(), 0), exponent = where(flat, one, b()) - 1.0;
          to[0] = sum_to(where(flat, zero, g.grad() * (b() * pow(a(), exponent))), a().shape());
        }
        if (g.needs(1)) {
          const Tensor flat = logical_and(eq(a(), 0), ge(b(), 0));
          to[1] = sum_to(where(flat, zero, g.grad() * (g.output() * log(where(flat, one, a())))),
                         b().shape());
        }
        return to;
      },
      Keep::outputs);
}

Tensor pow(double x, const Tensor& y) {
  const Tensor z = floating("pow", y);
  if (is_narrow(z.dtype())) return pow(x, widened(z)).to(z.dtype());
  return pow(scalar(x, options_of(z)), z);
}

Tensor floor_divide(const Tensor& x, const Tensor& z) {
  const auto [a, b] = promoted("floor_divide", x, z);
  return arithmetic<em::FloorDivide>("floor_divide", a, b);
}

Tensor floor_divide(const Tensor& x, double c) {
  const Tensor a = for_scalar("floor_divide", x, c);
  if (is_narrow(a.dtype())) return floor_divide(a.to(f32), c).to(a.dtype());
  return floor_divide(a, scalar(c, options_of(a)));
}

Tensor remainder(const Tensor& x, const Tensor& z) {
  const auto [a, b] = promoted("remainder", x, z);
  return record(
      "remainder", {a, b}, arithmetic<em::Remainder>("remainder", a, b),
      [a = Saved(a), b = Saved(b)](Backward& g) {
        const Tensor quotient = g.needs(1) ? round((a() - g.output()) / b()) : Tensor();
        return Tensors{g.needs(0) ? sum_to(g.grad(), a().shape()) : Tensor(),
                       g.needs(1) ? sum_to(-(g.grad() * quotient), b().shape()) : Tensor()};
      },
      Keep::outputs);
}

Tensor remainder(const Tensor& x, double c) {
  const Tensor a = for_scalar("remainder", x, c);
  if (is_narrow(a.dtype())) return remainder(widened(a), c).to(a.dtype());
  return remainder(a, scalar(c, options_of(a)));
}

namespace {

// The gradient of maximum and minimum: all of it to the selected operand, half to each on ties.
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

template <class T, class S>
STRETTO_CLONES void add_run(T* y, int64_t sy, const S* x, int64_t sx, int64_t n,
                            compute_t<T> scale) {
  using C = compute_t<T>;
  if (sy == 1 && sx == 1) {
    for (int64_t i = 0; i < n; ++i) y[i] = T(C(y[i]) + scale * C(x[i]));
  } else {
    for (int64_t i = 0; i < n; ++i) y[i * sy] = T(C(y[i * sy]) + scale * C(x[i * sx]));
  }
}

void add_scaled(const Tensor& to, const Tensor& from, double scale) {
  const StridedLoop<2> loop(to.shape(), {to.strides(), from.strides()});
  const auto run = [&](auto* y, const auto* x) {
    using C = compute_t<std::remove_pointer_t<decltype(y)>>;
    loop.run([&](auto at, int64_t n) {
      add_run(y + at[0], loop.inner[0], x + at[1], loop.inner[1], n, C(scale));
    });
  };
  if (from.dtype() != to.dtype())
    return run(to.data<float>(), static_cast<const BFloat16*>(from.data<BFloat16>()));
  dispatch_floating(to.dtype(), "add_",
                    [&]<class T>() { run(to.data<T>(), static_cast<const T*>(from.data<T>())); });
}

template <class T>
STRETTO_CLONES void scale_run(T* y, int64_t stride, int64_t n, compute_t<T> factor) {
  if (stride == 1) {
    for (int64_t i = 0; i < n; ++i) y[i] = T(compute_t<T>(y[i]) * factor);
  } else {
    for (int64_t i = 0; i < n; ++i) y[i * stride] = T(compute_t<T>(y[i * stride]) * factor);
  }
}

void scale(const Tensor& x, double factor) {
  const StridedLoop<1> loop(x.shape(), {x.strides()});
  dispatch_floating(x.dtype(), "mul_", [&]<class T>() {
    T* y = x.data<T>();
    loop.run(
        [&](auto at, int64_t n) { scale_run(y + at[0], loop.inner[0], n, compute_t<T>(factor)); });
  });
}

}  // namespace

Tensor Tensor::add_(const Tensor& other, double scale) const {
  check_in_place("add_", *this);
  check_not_recorded("add_", other);
  check_same_device("add_", {this, &other});
  check(is_floating(dtype()), "add_", "got ", *this, "; accepted: a floating-point tensor");
  const bool widened = dtype() == f32 && other.dtype() == bf16;  // converted while it is read
  const Tensor x = widened ? other.detach() : other.detach().to(dtype());
  const Tensor from = broadcast_to(readable_while_writing(*this, x), shape());
  on_device(*this, add_scaled, cuda::add_scaled, from, scale);
  ++storage().version;
  return *this;
}

Tensor Tensor::mul_(double factor) const {
  check_in_place("mul_", *this);
  if (is_floating(dtype())) {
    on_device(*this, scale, cuda::scale, factor);
    ++storage().version;
    return *this;
  }
  NoGrad guard;
  const Tensor product = mul(*this, factor);
  check(!is_floating(product.dtype()), "mul_", *this, " times ", factor,
        " is not an integer tensor; convert the tensor to a floating-point dtype first");
  return copy_(product);
}

}  // namespace stretto
