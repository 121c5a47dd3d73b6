// Elementwise functions of one or more tensors. Operands broadcast as in NumPy and are promoted
// to a common dtype (core/dtype.h, promote); bool counts as i64 in arithmetic, and stays bool in
// `where`, `masked_fill`, `tril` and `triu`. A C++ number takes the tensor's dtype; with an integer
// tensor a fraction, an infinity or what is beyond i64 gives f32. Integers wrap around.
//
// A quotient is never an integer: where the common dtype is none of the floating ones it is f32.
// Functions of analysis on integers give f32 too. Integers become f32 first, so beyond 2^24 convert
// them to f64 yourself.
//
// Derivatives at kinks: relu, abs and clamp have 0 where two slopes meet (clamp passes the gradient
// at the bounds); maximum and minimum split it in halves on ties. NaN propagates everywhere.
#pragma once

#include "../core/tensor.h"

namespace stretto {

Tensor add(const Tensor& a, const Tensor& b);
Tensor sub(const Tensor& a, const Tensor& b);
Tensor mul(const Tensor& a, const Tensor& b);
/// Floating division, also of integers.
Tensor div(const Tensor& a, const Tensor& b);
Tensor maximum(const Tensor& a, const Tensor& b);
Tensor minimum(const Tensor& a, const Tensor& b);
Tensor add(const Tensor& a, double b);
Tensor mul(const Tensor& a, double b);
Tensor div(const Tensor& a, double b);
Tensor div(double a, const Tensor& b);

inline Tensor operator+(const Tensor& a, const Tensor& b) { return add(a, b); }
inline Tensor operator-(const Tensor& a, const Tensor& b) { return sub(a, b); }
inline Tensor operator*(const Tensor& a, const Tensor& b) { return mul(a, b); }
inline Tensor operator/(const Tensor& a, const Tensor& b) { return div(a, b); }
inline Tensor operator+(const Tensor& a, double b) { return add(a, b); }
inline Tensor operator+(double a, const Tensor& b) { return add(b, a); }
inline Tensor operator-(const Tensor& a, double b) { return add(a, -b); }
inline Tensor operator*(const Tensor& a, double b) { return mul(a, b); }
inline Tensor operator*(double a, const Tensor& b) { return mul(b, a); }
inline Tensor operator/(const Tensor& a, double b) { return div(a, b); }
inline Tensor operator/(double a, const Tensor& b) { return div(a, b); }
Tensor neg(const Tensor& x);
inline Tensor operator-(const Tensor& x) { return neg(x); }
inline Tensor operator-(double a, const Tensor& b) { return add(neg(b), a); }

// Comparisons give bool tensors, without gradients. Integers are compared with a C++ number
// exactly; two tensors in their common dtype.
Tensor eq(const Tensor& a, const Tensor& b);
Tensor ne(const Tensor& a, const Tensor& b);
Tensor lt(const Tensor& a, const Tensor& b);
Tensor le(const Tensor& a, const Tensor& b);
Tensor gt(const Tensor& a, const Tensor& b);
Tensor ge(const Tensor& a, const Tensor& b);
Tensor eq(const Tensor& a, double b);
Tensor ne(const Tensor& a, double b);
Tensor lt(const Tensor& a, double b);
Tensor le(const Tensor& a, double b);
Tensor gt(const Tensor& a, double b);
Tensor ge(const Tensor& a, double b);
inline Tensor operator<(const Tensor& a, const Tensor& b) { return lt(a, b); }
inline Tensor operator<=(const Tensor& a, const Tensor& b) { return le(a, b); }
inline Tensor operator>(const Tensor& a, const Tensor& b) { return gt(a, b); }
inline Tensor operator>=(const Tensor& a, const Tensor& b) { return ge(a, b); }
inline Tensor operator<(const Tensor& a, double b) { return lt(a, b); }
inline Tensor operator<=(const Tensor& a, double b) { return le(a, b); }
inline Tensor operator>(const Tensor& a, double b) { return gt(a, b); }
inline Tensor operator>=(const Tensor& a, double b) { return ge(a, b); }

// Masks (bool or u8, 0 = false, anything else true).
Tensor logical_and(const Tensor& a, const Tensor& b);
Tensor logical_or(const Tensor& a, const Tensor& b);
Tensor logical_not(const Tensor& a);

/// a where `mask`, else b; all three broadcast. The branch not taken gets a gradient of exactly 0,
/// also where it is NaN or infinite.
Tensor where(const Tensor& mask, const Tensor& a, const Tensor& b);
/// `value` where `mask`, else x; the mask broadcasts to x. Throws for a value that x's integer
/// dtype does not have, such as −∞.
Tensor masked_fill(const Tensor& x, const Tensor& mask, double value);

Tensor exp(const Tensor& x);
Tensor log(const Tensor& x);
Tensor sin(const Tensor& x);
Tensor cos(const Tensor& x);
Tensor tanh(const Tensor& x);
Tensor sigmoid(const Tensor& x);
Tensor erf(const Tensor& x);
Tensor abs(const Tensor& x);
Tensor relu(const Tensor& x);
/// x·Φ(x) with the exact normal distribution function; gelu_tanh is the tanh approximation
/// (Hendrycks & Gimpel, 2016).
Tensor gelu(const Tensor& x);
Tensor gelu_tanh(const Tensor& x);
/// x·sigmoid(x).
Tensor silu(const Tensor& x);
/// log(1 + eˣ).
Tensor softplus(const Tensor& x);
Tensor square(const Tensor& x);
Tensor sqrt(const Tensor& x);
/// 1/√x.
Tensor rsqrt(const Tensor& x);
/// xᵖ as std::pow: 0⁰ = 1, NaN for a negative base with a fractional exponent.
Tensor pow(const Tensor& x, double exponent);
/// min(max(x, low), high); low ≤ high. Integers go to the integers of their dtype between the
/// bounds; none there is an error.
Tensor clamp(const Tensor& x, double low, double high);
/// 1 where x > 0, else 0, in x's dtype (NaN stays NaN); no gradient. The slope of relu.
Tensor heaviside(const Tensor& x);
/// −1, 0 or 1 in x's dtype; no gradient.
Tensor sign(const Tensor& x);

}  // namespace stretto
