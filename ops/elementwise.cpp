// Elementwise ops. Order: unary functions, scalars, functions of two tensors, changes in
// place. Comparisons and selection by mask are in elementwise_masks.cpp.
#include "ops/elementwise.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "autograd/accumulate.h"
#include "autograd/tape.h"
#include "cuda/elementwise.h"
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

// y may be a or b.
template <class T, class F>
STRETTO_CLONES void map2_run(const T* a, const T* b, T* y, int64_t n, F f) {
#pragma GCC ivdep
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
  const Tensor x = input.contiguous();
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

// g · F′, in one pass, in g's place where nothing else holds it; `at` is x or y, whichever the
// derivative reads.
template <class F>
Tensor chain_rule(const char* op, const Tensor& at, const Tensor& grad) {
  const Tensor x = at.contiguous();
  Tensor copy;
  const Tensor& g = contiguous(grad, copy);
  Tensor y;
  if constexpr (requires { F::far; }) {
    y = empty_like(g);  // what is far reads g once more
  } else {
    y = in_place_or_new(g);
  }
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
  Tensor y = on_device(
      x.detach(),
      [op](const Tensor& v) {
        double (*far)(double) = nullptr;
        if constexpr (requires { F::far; }) far = F::far;
        return map(
            op, v, [](auto e) { return F::value(e); }, far);
      },
      [](const Tensor& v) { return cuda::unary(F(), v); });
  constexpr bool from_x = F::needs == em::Needs::x;
  return record(
      op, {x}, y,
      [op, saved = from_x ? Saved(x) : Saved()](Backward& b) {
        const Tensor at = from_x ? saved() : b.output();
        if (grad_enabled()) return Tensors{b.grad() * F::derivative(at, at)};
        return Tensors{on_device(
            at.detach(), [op](const Tensor& v, const Tensor& g) { return chain_rule<F>(op, v, g); },
            [](const Tensor& v, const Tensor& g) { return cuda::chain_rule(F(), v, g); },
            b.take_grad())};
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

template <class F>
Tensor map_integers(const Tensor& input, F f) {
  const Tensor x = input.contiguous(), y = empty_like(x);
  const int64_t* from = x.data<int64_t>();
  int64_t* to = y.data<int64_t>();
  parallel_for(x.numel(), 16384, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) to[i] = f(from[i]);
  });
  return y;
}

// y = f(x), on CUDA kernel(x). Integers keep their dtype; f and the kernel see i64.
template <class F, class Kernel>
Tensor map_any(const char* op, const Tensor& x, F f, Kernel kernel) {
  if (is_floating(x.dtype()))
    return on_device(
        x.detach(), [&](const Tensor& v) { return map(op, v, f); }, kernel);
  return on_device(
             x.to(i64), [&](const Tensor& v) { return map_integers(v, f); }, kernel)
      .to(x.dtype());
}

template <class F>
Tensor piecewise(const char* op, const Tensor& x) {
  return map_any(
      op, x, [](auto v) { return F::value(v); },
      [](const Tensor& v) { return cuda::unary(F(), v); });
}

}  // namespace

Tensor abs(const Tensor& x) {
  return record("abs", {x}, piecewise<em::Abs>("abs", x),
                [x = Saved(x)](Backward& b) { return Tensors{b.grad() * sign(x())}; });
}

Tensor step(const Tensor& x) { return piecewise<em::Step>("step", x); }
Tensor sign(const Tensor& x) { return piecewise<em::Sign>("sign", x); }

// ---------------------------------------------------------------------------- scalars

namespace {

// The dtype of x ∘ c: x's own, but f32 where an integer tensor meets what is no i64.
Tensor for_scalar(const Tensor& x, double c) {
  if (is_floating(x.dtype())) return x;
  if (!has_value(i64, c)) return x.to(f32);
  return x.dtype() == boolean ? x.to(i64) : x;
}

// F(x, c).
template <class F>
Tensor with_number(const char* op, const Tensor& x, double c) {
  return map_any(
      op, x, [c](auto v) { return F::value(v, decltype(v)(c)); },
      [c](const Tensor& v) { return cuda::binary(F(), v, c); });
}

}  // namespace

Tensor add(const Tensor& input, double c) {
  const Tensor x = for_scalar(input, c);
  Tensor y = with_number<em::Add>("add", x, c);
  return record("add", {x}, y, [](Backward& b) { return Tensors{b.grad()}; });
}

Tensor mul(const Tensor& input, double c) {
  const Tensor x = for_scalar(input, c);
  Tensor y = with_number<em::Mul>("mul", x, c);
  return record("mul", {x}, y, [c](Backward& b) { return Tensors{b.grad() * c}; });
}

Tensor neg(const Tensor& x) { return mul(x, -1.0); }

Tensor div(const Tensor& input, double c) {
  const Tensor x = floating(input);
  Tensor y = with_number<em::Div>("div", x, c);
  return record("div", {x}, y, [c](Backward& b) { return Tensors{b.grad() / c}; });
}

Tensor div(double c, const Tensor& input) {
  const Tensor x = floating(input);
  Tensor y = map_any(
      "div", x, [c](auto v) { return em::Div::value(decltype(v)(c), v); },
      [c](const Tensor& v) { return cuda::binary(em::Div(), c, v); });
  return record(
      "div", {x}, y,
      [x = Saved(x)](Backward& b) { return Tensors{-(b.grad() * (b.output() / x()))}; },
      Keep::outputs);
}

Tensor pow(const Tensor& input, double p) {
  const Tensor x = floating(input);
  Tensor y = with_number<em::Pow>("pow", x, p);
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
        return map("clamp", v, [=](auto e) { return em::clamp(e, low, high); });
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
  dispatch(a.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    if constexpr (!std::is_same_v<T, bool>)
      binary_loop<T, T>(a, b, y, [](auto u, auto v) { return F::value(u, v); });
  });
  return y;
}

// The kernels for integers are for i64; what narrower ones wrap to is the same.
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
  dispatch_floating(to.dtype(), "add_", [&](auto tag) {
    using T = typename decltype(tag)::type;
    run(to.data<T>(), static_cast<const T*>(from.data<T>()));
  });
}

STRETTO_CLONES void add_run_in_f32(float* y, const BFloat16* a, int64_t sa, const BFloat16* b,
                                   int64_t sb, int64_t n) {
  if (sa == 1 && sb == 1) {
    for (int64_t i = 0; i < n; ++i) y[i] = float(a[i]) + float(b[i]);
  } else {
    for (int64_t i = 0; i < n; ++i) y[i] = float(a[i * sa]) + float(b[i * sb]);
  }
}

void add_of_bf16(const Tensor& a, const Tensor& b, const Tensor& to) {
  const StridedLoop<3> loop(to.shape(), {to.strides(), a.strides(), b.strides()});
  float* const y = to.data<float>();
  const BFloat16 *const left = a.data<BFloat16>(), *const right = b.data<BFloat16>();
  loop.run([&](auto at, int64_t n) {
    add_run_in_f32(y + at[0], left + at[1], loop.inner[1], right + at[2], loop.inner[2], n);
  });
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
  dispatch_floating(x.dtype(), "mul_", [&](auto tag) {
    using T = typename decltype(tag)::type;
    T* y = x.data<T>();
    loop.run(
        [&](auto at, int64_t n) { scale_run(y + at[0], loop.inner[0], n, compute_t<T>(factor)); });
  });
}

}  // namespace

Tensor Tensor::add_(const Tensor& other, double scale) const {
  check_in_place("add_", *this);
  check_same_device("add_", {this, &other});
  check(is_floating(dtype()), "add_", "needs a floating tensor, got ", *this);
  const bool widened = dtype() == f32 && other.dtype() == bf16;  // as it is read
  const Tensor x = widened ? other.detach() : other.detach().to(dtype());
  const Tensor from = broadcast_to(readable_while_writing(*this, x), shape());
  on_device(*this, add_scaled, cuda::add_scaled, from, scale);
  ++storage().version;
  return *this;
}

Tensor add_in_f32(const Tensor& a, const Tensor& b) {
  check_same_device("add_in_f32", {&a, &b});
  check(a.dtype() == bf16 && b.dtype() == bf16 && a.shape() == b.shape(), "add_in_f32", "got ", a,
        " and ", b, "; accepted: two of bf16 and one shape");
  const Tensor sum = empty(a.shape(), {.dtype = f32, .device = a.device()});
  on_device(a, add_of_bf16, cuda::add_of_bf16, b, sum);
  return sum;
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
        " is no longer whole; convert it first");
  return copy_(product);
}

}  // namespace stretto
