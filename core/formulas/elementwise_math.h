// Values and derivatives of the elementwise functions, defined once for every use.
//
// `derivative` is a template over its argument type. With scalars it is the kernel of the backward
// pass, on CPU and GPU. With Tensors, whose functions of the same names are found by
// argument-dependent lookup, it is a differentiable expression, for gradients of gradients.
// `k<T>(c)` is a constant in either case. `needs` is what the derivative reads: x or y = f(x).
//
// The lists at the end contain all functions; GPU kernels are instantiated
// from them (cuda/elementwise.h).
#pragma once

#include "../math.h"
#include "activation.h"

namespace stretto::elementwise {

enum class Needs { x, y };

template <class T>
STRETTO_HD inline auto k(double constant) {
  if constexpr (std::is_floating_point_v<T>) {
    return T(constant);
  } else {
    return constant;
  }
}

template <class T>
STRETTO_HD inline T heaviside(T x) {
  return x > 0 ? T(1) : (x <= 0 ? T(0) : x);
}
template <class T>
STRETTO_HD inline T sign(T x) {
  return x > 0 ? T(1) : (x < 0 ? T(-1) : x * T(0));
}

template <class T>
STRETTO_HD inline T clamp(T x, double low, double high) {
  return x < T(low) ? T(low) : (x > T(high) ? T(high) : x);
}

// e^x for x <= 0.
template <class T>
STRETTO_HD inline T exp_negative(const T& x) {
  if constexpr (std::is_floating_point_v<T>) {
    return math::exp_negative(x);
  } else {
    return exp(x);
  }
}

// sigmoid(x) and its derivative sigmoid(x) · sigmoid(−x). A factor 1 − sigmoid(x) would lose
// precision to cancellation.
template <class T>
struct SigmoidAndSlope {
  T value, slope;
};
template <class T>
STRETTO_HD inline SigmoidAndSlope<T> sigmoid_and_slope(const T& x) {
  if constexpr (std::is_floating_point_v<T>) {
    const T e = math::exp_negative(-math::abs(x)), large = T(1) / (T(1) + e), small = e * large;
    return {x < 0 ? small : large, small * large};
  } else {
    const T value = sigmoid(x);
    return {value, value * sigmoid(-x)};
  }
}

struct Exp {
  static constexpr Needs needs = Needs::y;
  template <class T>
  STRETTO_HD static T value(T x) {
    return math::exp(x);
  }
  template <class T>
  STRETTO_HD static T derivative(const T&, const T& y) {
    return y;
  }
};

struct Log {
  static constexpr Needs needs = Needs::x;
  template <class T>
  STRETTO_HD static T value(T x) {
    return math::log(x);
  }
  template <class T>
  STRETTO_HD static T derivative(const T& x, const T&) {
    return k<T>(1) / x;
  }
};

struct Log1p {
  static constexpr Needs needs = Needs::x;
  template <class T>
  STRETTO_HD static T value(T x) {
    return math::log1p(x);
  }
  template <class T>
  STRETTO_HD static T derivative(const T& x, const T&) {
    return k<T>(1) / (k<T>(1) + x);
  }
};

struct Expm1 {
  static constexpr Needs needs = Needs::x;
  template <class T>
  STRETTO_HD static T value(T x) {
    return math::expm1(x);
  }
  template <class T>
  STRETTO_HD static T derivative(const T& x, const T&) {
    using math::exp;
    return exp(x);
  }
};

// `far` and `far_derivative` are for |x| beyond the range of the vector code in core/math.h.
struct Sin {
  static constexpr Needs needs = Needs::x;
  static double far(double x) { return std::sin(x); }
  static double far_derivative(double x) { return std::cos(x); }
  template <class T>
  STRETTO_HD static T value(T x) {
    return math::sin(x);
  }
  template <class T>
  STRETTO_HD static T derivative(const T& x, const T&) {
    using math::cos;
    return cos(x);
  }
};

struct Cos {
  static constexpr Needs needs = Needs::x;
  static double far(double x) { return std::cos(x); }
  static double far_derivative(double x) { return -std::sin(x); }
  template <class T>
  STRETTO_HD static T value(T x) {
    return math::cos(x);
  }
  template <class T>
  STRETTO_HD static T derivative(const T& x, const T&) {
    using math::sin;
    return -sin(x);
  }
};

struct Tanh {
  static constexpr Needs needs = Needs::y;
  template <class T>
  STRETTO_HD static T value(T x) {
    return math::tanh(x);
  }
  template <class T>
  STRETTO_HD static T derivative(const T&, const T& y) {
    return k<T>(1) - y * y;
  }
};

struct Sigmoid {
  static constexpr Needs needs = Needs::y;
  template <class T>
  STRETTO_HD static T value(T x) {
    return math::sigmoid(x);
  }
  template <class T>
  STRETTO_HD static T derivative(const T&, const T& y) {
    return y * (k<T>(1) - y);
  }
};

struct Erf {
  static constexpr Needs needs = Needs::x;
  template <class T>
  STRETTO_HD static T value(T x) {
    return math::erf(x);
  }
  template <class T>
  STRETTO_HD static T derivative(const T& x, const T&) {
    return exp_negative(-(x * x)) * k<T>(1.1283791670955126);  // 2/√π
  }
};

struct Relu {
  static constexpr Needs needs = Needs::y;
  template <class T>
  STRETTO_HD static T value(T x) {
    return x <= 0 ? T(0) : x;
  }
  template <class T>
  STRETTO_HD static T derivative(const T&, const T& y) {
    return heaviside(y);
  }
};

struct Gelu {
  static constexpr Needs needs = Needs::x;
  template <class T>
  STRETTO_HD static T value(T x) {
    return x * (T(0.5) + T(0.5) * math::erf(x * T(0.7071067811865476)));
  }
  template <class T>
  STRETTO_HD static T derivative(const T& x, const T&) {
    using math::erf;
    return k<T>(0.5) + k<T>(0.5) * erf(x * k<T>(0.7071067811865476)) +
           x * k<T>(0.3989422804014327) * exp_negative(x * x * k<T>(-0.5));
  }
};

// x/2 · (1 + tanh u) with u = √(2/π)·(x + 0.044715 x³), computed as x ·
// sigmoid(2u), without cancellation.
struct GeluTanh {
  static constexpr Needs needs = Needs::x;
  static constexpr double c1 = 2 * 0.7978845608028654, c3 = 0.044715 * c1;
  template <class T>
  STRETTO_HD static T value(T x) {
    return x * math::sigmoid(x * (T(c1) + T(c3) * (x * x)));
  }
  template <class T>
  STRETTO_HD static T derivative(const T& at, const T&) {
    const T x = clamp(at, -30, 30);  // outside, the derivative is 0 or 1, but powers could overflow
    const T z = x * x;
    const auto s = sigmoid_and_slope(x * (k<T>(c1) + k<T>(c3) * z));
    return s.value + s.slope * (x * (k<T>(c1) + k<T>(3 * c3) * z));
  }
};

struct Silu {
  static constexpr Needs needs = Needs::x;
  template <class T>
  STRETTO_HD static T value(T x) {
    return x * math::sigmoid(x);
  }
  template <class T>
  STRETTO_HD static T derivative(const T& x, const T&) {
    const auto s = sigmoid_and_slope(x);
    return s.value + x * s.slope;
  }
};

struct Softplus {
  static constexpr Needs needs = Needs::x;
  template <class T>
  STRETTO_HD static T value(T x) {
    return math::softplus(x);
  }
  template <class T>
  STRETTO_HD static T derivative(const T& x, const T&) {
    using math::sigmoid;
    return sigmoid(x);
  }
};

struct Square {
  static constexpr Needs needs = Needs::x;
  template <class T>
  STRETTO_HD static T value(T x) {
    return x * x;
  }
  template <class T>
  STRETTO_HD static T derivative(const T& x, const T&) {
    return x * k<T>(2);
  }
};

struct Sqrt {
  static constexpr Needs needs = Needs::y;
  template <class T>
  STRETTO_HD static T value(T x) {
    return math::sqrt(x);
  }
  template <class T>
  STRETTO_HD static T derivative(const T&, const T& y) {
    return k<T>(0.5) / y;
  }
};

struct Rsqrt {
  static constexpr Needs needs = Needs::y;
  template <class T>
  STRETTO_HD static T value(T x) {
    return math::rsqrt(x);
  }
  template <class T>
  STRETTO_HD static T derivative(const T&, const T& y) {
    return k<T>(-0.5) * (y * y * y);
  }
};

// Functions that also exist for integers. The derivative of abs is sign; the others have none.
struct Abs {
  template <class T>
  STRETTO_HD static T value(T x) {
    if constexpr (std::is_integral_v<T>)
      return x < 0 ? math::wrapping_sub(T(0), x) : x;
    else
      return math::abs(x);
  }
};
struct Heaviside {
  template <class T>
  STRETTO_HD static T value(T x) {
    return heaviside(x);
  }
};
struct Sign {
  template <class T>
  STRETTO_HD static T value(T x) {
    return sign(x);
  }
};
// Rounding; integers are unchanged. Ties go to the even integer.
struct Floor {
  template <class T>
  STRETTO_HD static T value(T x) {
    if constexpr (std::is_integral_v<T>) return x;
    return T(std::floor(x));
  }
};
struct Ceil {
  template <class T>
  STRETTO_HD static T value(T x) {
    if constexpr (std::is_integral_v<T>) return x;
    return T(std::ceil(x));
  }
};
struct Trunc {
  template <class T>
  STRETTO_HD static T value(T x) {
    if constexpr (std::is_integral_v<T>) return x;
    return T(std::trunc(x));
  }
};
struct Round {
  template <class T>
  STRETTO_HD static T value(T x) {
    if constexpr (std::is_integral_v<T>) return x;
    return T(std::nearbyint(x));
  }
};

// Values of the functions of two tensors; their derivatives are in elementwise.cpp.
struct Add {
  template <class T>
  STRETTO_HD static T value(T a, T b) {
    return math::wrapping_add(a, b);
  }
};
struct Sub {
  template <class T>
  STRETTO_HD static T value(T a, T b) {
    return math::wrapping_sub(a, b);
  }
};
struct Mul {
  template <class T>
  STRETTO_HD static T value(T a, T b) {
    return math::wrapping_mul(a, b);
  }
};
struct Div {
  template <class T>
  STRETTO_HD static T value(T a, T b) {
    return T(a / b);
  }
};
struct Pow {
  template <class T>
  STRETTO_HD static T value(T x, T exponent) {
    return T(std::pow(x, exponent));
  }
};
// ⌊a / b⌋, and the remainder of a / b with the sign of b. The smallest integer divided by −1
// overflows.
struct FloorDivide {
  template <class T>
  STRETTO_HD static T value(T a, T b) {
    if constexpr (std::is_integral_v<T>) {
      if (b == 0) return T(0);
      if (std::is_signed_v<T> && b == T(-1)) return math::wrapping_sub(T(0), a);
      return T(a / b - T(a % b != 0 && (a < 0) != (b < 0)));
    } else {
      const T r = T(std::fmod(a, b));
      if (b == 0) return a / b;
      const T quotient = T(std::nearbyint((a - r) / b)) - T(r != 0 && (r < 0) != (b < 0));
      return quotient != 0 ? quotient : T(a / b * T(0));  // a zero of its sign
    }
  }
};
struct Remainder {
  template <class T>
  STRETTO_HD static T value(T a, T b) {
    if constexpr (std::is_integral_v<T>) {
      if (b == 0 || (std::is_signed_v<T> && b == T(-1))) return T(0);
      const T r = T(a % b);
      return r != 0 && (r < 0) != (b < 0) ? T(r + b) : r;
    } else {
      const T r = T(std::fmod(a, b));
      return r != 0 && (r < 0) != (b < 0) ? r + b : r;
    }
  }
};
struct Maximum {
  template <class T>
  STRETTO_HD static T value(T a, T b) {
    return a > b || a != a ? a : b;
  }
};
struct Minimum {
  template <class T>
  STRETTO_HD static T value(T a, T b) {
    return a < b || a != a ? a : b;
  }
};
struct Eq {
  template <class T>
  STRETTO_HD static bool value(T a, T b) {
    return a == b;
  }
};
struct Ne {
  template <class T>
  STRETTO_HD static bool value(T a, T b) {
    return a != b;
  }
};
struct Lt {
  template <class T>
  STRETTO_HD static bool value(T a, T b) {
    return a < b;
  }
};
struct Le {
  template <class T>
  STRETTO_HD static bool value(T a, T b) {
    return a <= b;
  }
};
struct Gt {
  template <class T>
  STRETTO_HD static bool value(T a, T b) {
    return a > b;
  }
};
struct Ge {
  template <class T>
  STRETTO_HD static bool value(T a, T b) {
    return a >= b;
  }
};

/// Calls go<F>() with the type of f.
template <class Go>
decltype(auto) dispatch_activation(Activation f, Go&& go) {
  switch (f) {
    case Activation::relu:
      return go.template operator()<Relu>();
    case Activation::gelu:
      return go.template operator()<Gelu>();
    case Activation::gelu_tanh:
      return go.template operator()<GeluTanh>();
    case Activation::silu:
      break;
  }
  return go.template operator()<Silu>();
}

#define STRETTO_SMOOTH_FUNCTIONS(X) \
  X(Exp)                            \
  X(Log)                            \
  X(Log1p)                          \
  X(Expm1)                          \
  X(Tanh)                           \
  X(Sigmoid)                        \
  X(Erf)                            \
  X(Relu)                           \
  X(Gelu)                           \
  X(GeluTanh)                       \
  X(Silu)                           \
  X(Softplus)                       \
  X(Square)                         \
  X(Sqrt)                           \
  X(Rsqrt)
#define STRETTO_PERIODIC_FUNCTIONS(X) X(Sin) X(Cos)
#define STRETTO_UNARY_FUNCTIONS(X) STRETTO_SMOOTH_FUNCTIONS(X) STRETTO_PERIODIC_FUNCTIONS(X)
#define STRETTO_PIECEWISE_FUNCTIONS(X) \
  X(Abs) X(Heaviside) X(Sign) X(Floor) X(Ceil) X(Trunc) X(Round)
#define STRETTO_BINARY_FUNCTIONS(X) \
  X(Add) X(Sub) X(Mul) X(Div) X(Pow) X(FloorDivide) X(Remainder) X(Maximum) X(Minimum)
#define STRETTO_SCALAR_FUNCTIONS(X) X(Add) X(Mul) X(Div) X(Pow)
#define STRETTO_COMPARISONS(X) X(Eq) X(Ne) X(Lt) X(Le) X(Gt) X(Ge)

}  // namespace stretto::elementwise
