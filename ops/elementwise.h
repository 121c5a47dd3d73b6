// Elementwise functions of one or more tensors. Operands broadcast as in NumPy and are promoted to
// a common dtype (core/dtype.h, promote). bool counts as i64 in arithmetic, and stays bool in
// `where`, `masked_fill`, `tril` and `triu`. A C++ number takes the dtype of the tensor; with an
// integer tensor, a number with a fraction, an infinity or a number out of range of i64 gives f32.
// Integer overflow wraps around (modulo 2⁶⁴ for i64).
//
// A quotient a / b is never an integer: if the common dtype is not a floating-point dtype, the
// quotient is f32; floor_divide divides integers. pow and the functions from exp to rsqrt below,
// with relu and square, also give f32 for integers; abs, sign, heaviside, clamp and the rounding
// functions keep an integer dtype. Integers are first converted to f32, which represents them
// exactly only up to 2^24; convert larger integers to f64 yourself.
//
// Derivatives at kinks: relu and abs have derivative 0 at 0; clamp passes the gradient
// at its bounds; maximum and minimum give each operand half of the gradient on ties.
// A NaN in an operand tensor gives NaN, except in comparisons and logical functions, in elements
// that a mask discards, and in pow(x, 0) = 1 and pow(1, y) = 1.
//
// `x += y` is `x = x + y`: x refers to a new tensor, which autograd records, and other handles and
// views of the old one do not change. In place is x.add_(y).
#pragma once

#include "../core/tensor.h"

namespace stretto {

Tensor add(const Tensor& a, const Tensor& b);  ///< Returns a + b.
Tensor sub(const Tensor& a, const Tensor& b);  ///< Returns a − b.
Tensor mul(const Tensor& a, const Tensor& b);  ///< Returns a · b.
/// Returns a / b; f32 for integers.
Tensor div(const Tensor& a, const Tensor& b);
Tensor maximum(const Tensor& a, const Tensor& b);  ///< Returns the larger of a and b.
Tensor minimum(const Tensor& a, const Tensor& b);  ///< Returns the smaller of a and b.
Tensor maximum(const Tensor& a, double b);         ///< Returns the larger of a and b.
Tensor minimum(const Tensor& a, double b);         ///< Returns the smaller of a and b.
Tensor add(const Tensor& a, double b);             ///< Returns a + b.
Tensor mul(const Tensor& a, double b);             ///< Returns a · b.
Tensor div(const Tensor& a, double b);             ///< Returns a / b.
Tensor div(double a, const Tensor& b);             ///< Returns a / b.

inline Tensor operator+(const Tensor& a, const Tensor& b) { return add(a, b); }  ///< Returns a + b.
inline Tensor operator-(const Tensor& a, const Tensor& b) { return sub(a, b); }  ///< Returns a − b.
inline Tensor operator*(const Tensor& a, const Tensor& b) { return mul(a, b); }  ///< Returns a · b.
inline Tensor operator/(const Tensor& a, const Tensor& b) { return div(a, b); }  ///< Returns a / b.
inline Tensor operator+(const Tensor& a, double b) { return add(a, b); }         ///< Returns a + b.
inline Tensor operator+(double a, const Tensor& b) { return add(b, a); }         ///< Returns a + b.
inline Tensor operator-(const Tensor& a, double b) { return add(a, -b); }      ///< Returns a − b.
inline Tensor operator*(const Tensor& a, double b) { return mul(a, b); }       ///< Returns a · b.
inline Tensor operator*(double a, const Tensor& b) { return mul(b, a); }       ///< Returns a · b.
inline Tensor operator/(const Tensor& a, double b) { return div(a, b); }       ///< Returns a / b.
inline Tensor operator/(double a, const Tensor& b) { return div(a, b); }       ///< Returns a / b.
Tensor neg(const Tensor& x);                                                   ///< Returns −x.
inline Tensor operator-(const Tensor& x) { return neg(x); }                    ///< Returns −x.
inline Tensor operator-(double a, const Tensor& b) { return add(neg(b), a); }  ///< Returns a − b.
inline Tensor& operator+=(Tensor& a, const Tensor& b) { return a = a + b; }    ///< a = a + b.
inline Tensor& operator-=(Tensor& a, const Tensor& b) { return a = a - b; }    ///< a = a − b.
inline Tensor& operator*=(Tensor& a, const Tensor& b) { return a = a * b; }    ///< a = a · b.
inline Tensor& operator/=(Tensor& a, const Tensor& b) { return a = a / b; }    ///< a = a / b.
inline Tensor& operator+=(Tensor& a, double b) { return a = a + b; }           ///< a = a + b.
inline Tensor& operator-=(Tensor& a, double b) { return a = a - b; }           ///< a = a − b.
inline Tensor& operator*=(Tensor& a, double b) { return a = a * b; }           ///< a = a · b.
inline Tensor& operator/=(Tensor& a, double b) { return a = a / b; }           ///< a = a / b.

/// Returns ⌊a / b⌋, as Python's //, in the common dtype: integers for integers. Divided by 0 it is
/// a / b, or 0 for integers. No gradient.
Tensor floor_divide(const Tensor& a, const Tensor& b);
Tensor floor_divide(const Tensor& a, double b);  ///< Returns ⌊a / b⌋.
/// Returns the remainder of a / b with the sign of b, as Python's %: a − b·⌊a/b⌋. Modulo 0 it is
/// NaN, or 0 for integers. The gradient of b is −⌊a/b⌋.
Tensor remainder(const Tensor& a, const Tensor& b);
Tensor remainder(const Tensor& a, double b);  ///< Returns the remainder of a / b.
/// Returns remainder(a, b).
inline Tensor operator%(const Tensor& a, const Tensor& b) { return remainder(a, b); }
inline Tensor operator%(const Tensor& a, double b) { return remainder(a, b); }  ///< The same.

// Comparisons return bool tensors without gradients. Integers are compared exactly with a C++
// number. Two tensors are compared in their common dtype.
Tensor eq(const Tensor& a, const Tensor& b);  ///< Returns a = b.
Tensor ne(const Tensor& a, const Tensor& b);  ///< Returns a ≠ b.
Tensor lt(const Tensor& a, const Tensor& b);  ///< Returns a < b.
Tensor le(const Tensor& a, const Tensor& b);  ///< Returns a ≤ b.
Tensor gt(const Tensor& a, const Tensor& b);  ///< Returns a > b.
Tensor ge(const Tensor& a, const Tensor& b);  ///< Returns a ≥ b.
Tensor eq(const Tensor& a, double b);         ///< Returns a = b.
Tensor ne(const Tensor& a, double b);         ///< Returns a ≠ b.
Tensor lt(const Tensor& a, double b);         ///< Returns a < b.
Tensor le(const Tensor& a, double b);         ///< Returns a ≤ b.
Tensor gt(const Tensor& a, double b);         ///< Returns a > b.
Tensor ge(const Tensor& a, double b);         ///< Returns a ≥ b.
inline Tensor operator==(const Tensor& a, const Tensor& b) { return eq(a, b); }  ///< Returns a = b.
inline Tensor operator!=(const Tensor& a, const Tensor& b) { return ne(a, b); }  ///< Returns a ≠ b.
inline Tensor operator==(const Tensor& a, double b) { return eq(a, b); }         ///< Returns a = b.
inline Tensor operator==(double a, const Tensor& b) { return eq(b, a); }         ///< Returns a = b.
inline Tensor operator!=(double a, const Tensor& b) { return ne(b, a); }  ///< Returns a ≠ b.
inline Tensor operator!=(const Tensor& a, double b) { return ne(a, b); }  ///< Returns a ≠ b.
inline Tensor operator<(const Tensor& a, const Tensor& b) { return lt(a, b); }  ///< Returns a < b.
inline Tensor operator<=(const Tensor& a, const Tensor& b) { return le(a, b); }  ///< Returns a ≤ b.
inline Tensor operator>(const Tensor& a, const Tensor& b) { return gt(a, b); }  ///< Returns a > b.
inline Tensor operator>=(const Tensor& a, const Tensor& b) { return ge(a, b); }  ///< Returns a ≥ b.
inline Tensor operator<(const Tensor& a, double b) { return lt(a, b); }          ///< Returns a < b.
inline Tensor operator<=(const Tensor& a, double b) { return le(a, b); }  ///< Returns a ≤ b.
inline Tensor operator>(const Tensor& a, double b) { return gt(a, b); }   ///< Returns a > b.
inline Tensor operator>=(const Tensor& a, double b) { return ge(a, b); }  ///< Returns a ≥ b.
Tensor isnan(const Tensor& x);     ///< Returns whether x is NaN, as bool.
Tensor isinf(const Tensor& x);     ///< Returns whether x is ∞ or −∞, as bool.
Tensor isfinite(const Tensor& x);  ///< Returns whether x is neither NaN nor infinite, as bool.

// Masks: bool or u8, 0 is false and all other values are true.
Tensor logical_and(const Tensor& a, const Tensor& b);  ///< Returns a and b.
Tensor logical_or(const Tensor& a, const Tensor& b);   ///< Returns a or b.
Tensor logical_not(const Tensor& a);                   ///< Returns not a.
/// Returns a and b.
inline Tensor operator&(const Tensor& a, const Tensor& b) { return logical_and(a, b); }
/// Returns a or b.
inline Tensor operator|(const Tensor& a, const Tensor& b) { return logical_or(a, b); }
inline Tensor operator~(const Tensor& a) { return logical_not(a); }  ///< Returns not a.

/// Returns a where `mask` is true, else b; all three broadcast. The gradient of an element that is
/// not selected is exactly 0, even if the element is NaN or infinite.
Tensor where(const Tensor& mask, const Tensor& a, const Tensor& b);
Tensor where(const Tensor& mask, const Tensor& a, double b);  ///< The same with a number.
Tensor where(const Tensor& mask, double a, const Tensor& b);  ///< The same with a number.
/// Returns `value` where `mask` is true, else x; the mask broadcasts to x. Throws if an integer
/// dtype of x cannot represent the value, for example −∞.
Tensor masked_fill(const Tensor& x, const Tensor& mask, double value);

Tensor exp(const Tensor& x);      ///< Returns eˣ.
Tensor log(const Tensor& x);      ///< Returns the natural logarithm.
Tensor log1p(const Tensor& x);    ///< Returns log(1 + x), exact for small x.
Tensor expm1(const Tensor& x);    ///< Returns eˣ − 1, exact for small x.
Tensor sin(const Tensor& x);      ///< Returns the sine, x in radians.
Tensor cos(const Tensor& x);      ///< Returns the cosine, x in radians.
Tensor tanh(const Tensor& x);     ///< Returns the hyperbolic tangent.
Tensor sigmoid(const Tensor& x);  ///< Returns 1 / (1 + e⁻ˣ).
Tensor erf(const Tensor& x);      ///< Returns the error function.
Tensor abs(const Tensor& x);      ///< Returns |x|.
Tensor relu(const Tensor& x);     ///< Returns max(x, 0).
/// Returns x where x > 0, else slope · x.
Tensor leaky_relu(const Tensor& x, double slope = 0.01);
/// Returns x where x > 0, else alpha · (eˣ − 1) (Clevert et al., 2016).
Tensor elu(const Tensor& x, double alpha = 1);
/// Returns x·Φ(x) with the exact normal distribution function (Hendrycks & Gimpel, 2016).
Tensor gelu(const Tensor& x);
/// Returns the tanh approximation of gelu.
Tensor gelu_tanh(const Tensor& x);
/// Returns x·sigmoid(x).
Tensor silu(const Tensor& x);
/// Returns a·sigmoid(b) for the two halves a and b of dimension d (Dauphin et al., 2017). Throws
/// unless the size of d is even.
Tensor glu(const Tensor& x, Int d = -1);
/// Returns log(1 + eˣ).
Tensor softplus(const Tensor& x);
Tensor square(const Tensor& x);  ///< Returns x².
Tensor sqrt(const Tensor& x);    ///< Returns √x.
/// Returns 1/√x.
Tensor rsqrt(const Tensor& x);
/// Returns xᵖ, as std::pow: 0⁰ = 1, NaN for a negative base with a fractional exponent.
Tensor pow(const Tensor& x, double exponent);
/// Returns xʸ. The gradient of y is 0 where x = 0 and y ≥ 0.
Tensor pow(const Tensor& x, const Tensor& y);
Tensor pow(double x, const Tensor& y);  ///< Returns xʸ.
/// Returns min(max(x, low), high), with low ≤ high. An integer tensor is clamped to the integers
/// between the bounds; throws if its dtype has no integer between them.
Tensor clamp(const Tensor& x, double low, double high);
/// Returns 1 where x > 0, else 0, in x's dtype (NaN stays NaN); no gradient. The
/// derivative of relu.
Tensor heaviside(const Tensor& x);
/// Returns −1, 0 or 1 in x's dtype; no gradient.
Tensor sign(const Tensor& x);
// Rounding to integers, in x's dtype; no gradient.
Tensor floor(const Tensor& x);  ///< Returns the largest integer ≤ x.
Tensor ceil(const Tensor& x);   ///< Returns the smallest integer ≥ x.
Tensor trunc(const Tensor& x);  ///< Returns the integer part: rounds toward 0.
Tensor round(const Tensor& x);  ///< Returns the nearest integer, the even one of two.

}  // namespace stretto
