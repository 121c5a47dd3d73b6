// Reference arithmetic: a double with a bound on the rounding error that the same formula has in
// another precision, and with its own tape for derivatives.
//
// The bound is a first-order running error analysis (Higham, "Accuracy and Stability of
// Numerical Algorithms", 2nd ed., §3.3): every operation adds its own rounding error to the
// errors of its operands, weighted by its slopes. The bound has two parts in units of the unit
// roundoff u: `rounding` for computations (u of f32 for f32 and bf16, of f64 for f64) and
// `storing` for values that are stored in the tensor's dtype (u of bf16 for bf16). So one scalar
// loop is the reference for values, gradients and tolerances of all three dtypes. The tape is
// independent of the library's.
#pragma once

#include <cmath>
#include <cstdint>
#include <vector>

#include "core/dtype.h"

namespace stretto::testing {

struct Number {
  double value = 0;
  double rounding = 0;
  double storing = 0;
  int32_t node = -1;  // index on the tape; −1 for constants

  Number() = default;
  Number(double v) : value(v), rounding(double(float(v)) == v ? 0 : std::fabs(v)) {}
};

/// A constant that every dtype represents exactly, such as an input.
inline Number exact_number(double value) {
  Number x;
  x.value = value;
  return x;
}

/// ∂result/∂parent, with its own error bound.
struct Slope {
  double value = 0, rounding = 0, storing = 0;
  int32_t parent = -1;
};
struct Step {
  Slope a, b;
  bool stored = false;  // in bf16, and so its gradient
};
inline std::vector<Step>& number_tape() {
  thread_local std::vector<Step> steps;
  return steps;
}

/// An exact input that is differentiated.
inline Number leaf_number(double value) {
  Number x;
  x.value = value;
  x.node = int32_t(number_tape().size());
  number_tape().emplace_back();
  return x;
}

inline Number result(double value, double rounding, double storing, Slope a, Slope b = {}) {
  Number y;
  y.value = value;
  y.rounding = rounding;
  y.storing = storing;
  if (a.parent >= 0 || b.parent >= 0) {
    y.node = int32_t(number_tape().size());
    number_tape().push_back({a, b, false});
  }
  return y;
}

/// `value` rounded to `dtype`.
inline double rounded(double value, DType dtype) {
  return dtype == f64 ? value : dtype == f32 ? double(float(value)) : double(BFloat16(value));
}

/// x after it was stored in a bf16 tensor, as is its gradient once all uses have added to it.
inline Number stored_number(const Number& x) {
  Number y = result(rounded(x.value, bf16), x.rounding, x.storing, {.value = 1, .parent = x.node});
  if (y.node >= 0) number_tape().back().stored = true;
  return y;
}

/// The derivatives of Σ weights·outputs by the first `leaves` numbers of the tape.
struct Gradients {
  std::vector<double> value, rounding, storing;
};
inline Gradients number_gradients(const std::vector<Number>& outputs,
                                  const std::vector<double>& weights, size_t leaves) {
  const std::vector<Step>& steps = number_tape();
  Gradients g;
  for (auto* list : {&g.value, &g.rounding, &g.storing}) list->resize(steps.size());
  const auto send = [&](const Slope& s, double value, double rounding, double storing) {
    if (s.parent < 0) return;
    const auto to = size_t(s.parent);
    const double product = s.value * value;
    // Factors of 1 and 0 do not round; anything else is a product, and a tensor in memory.
    const double own = std::fabs(s.value) == 1 || s.value == 0 ? 0 : std::fabs(product);
    const bool first = g.value[to] == 0 && g.rounding[to] == 0;
    g.value[to] += product;
    g.rounding[to] += std::fabs(s.value) * rounding + s.rounding * std::fabs(value) + own +
                      (first ? 0 : std::fabs(g.value[to]));
    g.storing[to] += std::fabs(s.value) * storing + s.storing * std::fabs(value) + own;
  };
  for (size_t i = 0; i < outputs.size(); ++i)
    send({.value = 1, .parent = outputs[i].node}, weights[i], 0, 0);
  for (size_t i = steps.size(); i-- > leaves;) {
    if (steps[i].stored) g.value[i] = rounded(g.value[i], bf16);
    send(steps[i].a, g.value[i], g.rounding[i], g.storing[i]);
    send(steps[i].b, g.value[i], g.rounding[i], g.storing[i]);
  }
  for (auto* list : {&g.value, &g.rounding, &g.storing}) list->resize(leaves);
  return g;
}

// ---------------------------------------------------------------------------- arithmetic

inline Number operator+(const Number& a, const Number& b) {
  const double y = a.value + b.value;
  return result(y, a.rounding + b.rounding + std::fabs(y), a.storing + b.storing,
                {.value = 1, .parent = a.node}, {.value = 1, .parent = b.node});
}

inline Number operator-(const Number& a, const Number& b) {
  const double y = a.value - b.value;
  return result(y, a.rounding + b.rounding + std::fabs(y), a.storing + b.storing,
                {.value = 1, .parent = a.node}, {.value = -1, .parent = b.node});
}

inline Number operator-(const Number& a) {
  return result(-a.value, a.rounding, a.storing, {.value = -1, .parent = a.node});
}

inline Number operator*(const Number& a, const Number& b) {
  const double y = a.value * b.value, p = std::fabs(a.value), q = std::fabs(b.value);
  return result(y, p * b.rounding + q * a.rounding + std::fabs(y), p * b.storing + q * a.storing,
                {b.value, b.rounding, b.storing, a.node}, {a.value, a.rounding, a.storing, b.node});
}

/// The slope in b is −(1/b)·(a/b): three roundings, and a/b and g/b pass through memory.
inline Number operator/(const Number& a, const Number& b) {
  const double y = a.value / b.value, q = std::fabs(1 / b.value), s = std::fabs(y) * q;
  const auto error = [&](double ea, double eb) { return q * ea + s * eb; };
  return result(y, error(a.rounding, b.rounding) + std::fabs(y), error(a.storing, b.storing),
                {1 / b.value, q * q * b.rounding + q, q * q * b.storing, a.node},
                {-y / b.value, q * error(a.rounding, 2 * b.rounding) + 3 * s,
                 q * error(a.storing, 2 * b.storing) + 2 * s, b.node});
}

// ---------------------------------------------------------------------------- functions

/// A unary function at one point.
struct Curve {
  double y, slope, bend;      // value, first and second derivative
  double ulps = 4;            // error of y in units of u; 4 are two units in the last place
  double slope_rounding = 0;  // error of the computed slope, in u, ...
  double slope_storing = 0;   // ... and of computing it from a stored y
};
inline Number curve(const Number& x, const Curve& c) {
  const double d = std::fabs(c.slope), dd = std::fabs(c.bend);
  return result(
      c.y, d * x.rounding + c.ulps * std::fabs(c.y), d * x.storing,
      {c.slope, dd * x.rounding + c.slope_rounding, dd * x.storing + c.slope_storing, x.node});
}

inline Number exp(const Number& x) {
  const double y = std::exp(x.value);
  return curve(x, {.y = y, .slope = y, .bend = y, .slope_rounding = 4 * y, .slope_storing = y});
}
inline Number log(const Number& x) {
  const double d = 1 / x.value;
  return curve(x,
               {.y = std::log(x.value), .slope = d, .bend = d * d, .slope_rounding = std::fabs(d)});
}
inline Number log1p(const Number& x) {
  const double d = 1 / (1 + x.value);
  return curve(x, {.y = std::log1p(x.value),
                   .slope = d,
                   .bend = d * d,
                   .slope_rounding = 2 * std::fabs(d),
                   .slope_storing = std::fabs(d)});
}
inline Number expm1(const Number& x) {
  const double d = std::exp(x.value);
  return curve(x, {.y = std::expm1(x.value), .slope = d, .bend = d, .slope_rounding = 4 * d});
}
inline Number sin(const Number& x) {
  const double s = std::sin(x.value), c = std::cos(x.value);
  return curve(x, {.y = s, .slope = c, .bend = s, .slope_rounding = 4 * std::fabs(c)});
}
inline Number cos(const Number& x) {
  const double s = std::sin(x.value), c = std::cos(x.value);
  return curve(x, {.y = c, .slope = -s, .bend = c, .slope_rounding = 4 * std::fabs(s)});
}
/// The slope is 1 − y² of the computed y.
inline Number tanh(const Number& x) {
  const double y = std::tanh(x.value), d = 1 - y * y;
  return curve(x, {.y = y,
                   .slope = d,
                   .bend = 2 * y * d,
                   .slope_rounding = 9 * y * y + d,
                   .slope_storing = 2 * y * y});
}
inline double sigmoid_value(double x) {
  return x >= 0 ? 1 / (1 + std::exp(-x)) : std::exp(x) / (1 + std::exp(x));
}
/// The slope is y(1 − y) of the computed y.
inline Number sigmoid(const Number& x) {
  const double y = sigmoid_value(x.value), d = y * sigmoid_value(-x.value);
  const double sensitivity = std::fabs(1 - 2 * y);
  return curve(x, {.y = y,
                   .slope = d,
                   .bend = d * (1 - 2 * y),
                   .slope_rounding = 4 * sensitivity * y + 2 * d,
                   .slope_storing = sensitivity * y});
}
inline Number softplus(const Number& x) {
  const double y = std::fmax(x.value, 0) + std::log1p(std::exp(-std::fabs(x.value)));
  const double d = sigmoid_value(x.value);
  return curve(x, {.y = y, .slope = d, .bend = d * (1 - d), .slope_rounding = 4 * d});
}
inline Number erf(const Number& x) {
  const double d = 2 / std::sqrt(M_PI) * std::exp(-x.value * x.value);
  return curve(x, {.y = std::erf(x.value),
                   .slope = d,
                   .bend = 2 * x.value * d,
                   .slope_rounding = (x.value * x.value + 6) * d});
}
inline Number sqrt(const Number& x) {
  const double y = std::sqrt(x.value), d = 0.5 / y;
  return curve(x, {.y = y,
                   .slope = d,
                   .bend = d / (2 * x.value),
                   .ulps = 1,
                   .slope_rounding = 2 * d,
                   .slope_storing = d});
}
inline Number rsqrt(const Number& x) {
  const double y = 1 / std::sqrt(x.value), d = -0.5 * y * y * y;
  return curve(x, {.y = y,
                   .slope = d,
                   .bend = 1.5 * d / x.value,
                   .slope_rounding = 15 * std::fabs(d),
                   .slope_storing = 3 * std::fabs(d)});
}
/// Rounding the exponent adds |p ln x|. The slope p·xᵖ⁻¹ needs two tensors in memory.
inline Number pow(const Number& x, double p) {
  const double y = std::pow(x.value, p), d = p == 0 ? 0 : p * std::pow(x.value, p - 1);
  const double bend = p * (p - 1) * std::pow(x.value, p - 2);
  const double turn = double(float(p)) == p ? 0 : std::fabs(p * std::log(std::fabs(x.value)));
  return curve(x, {.y = y,
                   .slope = d,
                   .bend = p == 0 || p == 1 ? 0 : bend,
                   .ulps = 2 + turn,
                   .slope_rounding = (4 + turn) * std::fabs(d),
                   .slope_storing = 2 * std::fabs(d)});
}
/// xᵖ of two numbers. The slopes p·xᵖ⁻¹ and y·log(x) need two tensors in memory and p − 1 another.
inline Number pow(const Number& x, const Number& p) {
  const double y = std::pow(x.value, p.value), log_x = std::log(x.value);
  const double in_x = p.value == 0 ? 0 : p.value * std::pow(x.value, p.value - 1);
  const double in_p = x.value == 0 && p.value >= 0 ? 0 : y * log_x;
  const double turn = 2 + std::fabs((p.value - 1) * log_x);
  return result(y, std::fabs(in_x) * x.rounding + std::fabs(in_p) * p.rounding + 2 * std::fabs(y),
                std::fabs(in_x) * x.storing + std::fabs(in_p) * p.storing,
                {in_x, (2 + turn) * std::fabs(in_x), turn * std::fabs(in_x), x.node},
                {in_p, 8 * std::fabs(in_p), 2 * std::fabs(in_p), p.node});
}
/// a modulo b with the sign of b; std::fmod is exact.
inline Number remainder(const Number& a, const Number& b) {
  const double r = std::fmod(a.value, b.value);
  const bool other_sign = r != 0 && (r < 0) != (b.value < 0);
  const double y = other_sign ? r + b.value : r;
  return result(y, other_sign ? std::fabs(y) : 0, 0, {.value = 1, .parent = a.node},
                {.value = -std::round((a.value - y) / b.value), .parent = b.node});
}
/// ⌊a / b⌋: the quotient toward 0, a multiple of b up to rounding, and 1 less for other signs.
inline Number floor_divide(const Number& a, const Number& b) {
  const double r = std::fmod(a.value, b.value), toward_0 = std::round((a.value - r) / b.value);
  const double y =
      b.value == 0 ? a.value / b.value : toward_0 - double(r != 0 && (r < 0) != (b.value < 0));
  return result(y, 2 * std::fabs(y), 0, {});
}
/// Slope 0 at 0: a constant.
inline Number abs(const Number& x) { return x.value < 0 ? -x : x.value == 0 ? Number() : x; }

}  // namespace stretto::testing
