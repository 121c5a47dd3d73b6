// Elementwise functions on the device, those of core/formulas/elementwise_math.h, selected by tag
// types. Any strides. f32, f64 or bf16; abs, heaviside, sign, clamp and the binary functions except
// div and pow also i64.
#pragma once

#include "../core/formulas/elementwise_math.h"
#include "runtime/kernel.h"

namespace stretto::cuda {

/// F(x).
#define STRETTO_DECLARE(F) STRETTO_KERNEL(Tensor unary(elementwise::F, const Tensor& x));
STRETTO_UNARY_FUNCTIONS(STRETTO_DECLARE)
STRETTO_PIECEWISE_FUNCTIONS(STRETTO_DECLARE)
#undef STRETTO_DECLARE

/// g · F′(x). F′(x) is computed from `at`: x or F(x), as F::needs says. `at` and g have one shape.
#define STRETTO_DECLARE(F) \
  STRETTO_KERNEL(Tensor chain_rule(elementwise::F, const Tensor& at, const Tensor& g));
STRETTO_UNARY_FUNCTIONS(STRETTO_DECLARE)
#undef STRETTO_DECLARE

/// F(a, b), of one dtype, with broadcasting.
#define STRETTO_DECLARE(F) \
  STRETTO_KERNEL(Tensor binary(elementwise::F, const Tensor& a, const Tensor& b));
STRETTO_BINARY_FUNCTIONS(STRETTO_DECLARE)
#undef STRETTO_DECLARE

/// F(x, c) and F(c, x), with c in the type that x is computed in.
#define STRETTO_DECLARE(F)                                                  \
  STRETTO_KERNEL(Tensor binary(elementwise::F, const Tensor& x, double c)); \
  STRETTO_KERNEL(Tensor binary(elementwise::F, double c, const Tensor& x));
STRETTO_SCALAR_FUNCTIONS(STRETTO_DECLARE)
#undef STRETTO_DECLARE

STRETTO_KERNEL(Tensor clamp(const Tensor& x, double low, double high));
/// As above, for i64.
STRETTO_KERNEL(Tensor clamp(const Tensor& x, int64_t low, int64_t high));
/// to += scale · from; `from` is broadcast to the shape of `to`. One floating
/// dtype, or bf16 to f32.
STRETTO_KERNEL(void add_scaled(const Tensor& to, const Tensor& from, double scale));
/// to = Σ terms: the sum of 2 to 4 bf16 tensors of one shape, in f32; `to` has f32 or bf16.
STRETTO_KERNEL(void add_bf16(const Tensors& terms, const Tensor& to));
/// x *= factor; floating dtypes.
STRETTO_KERNEL(void scale(const Tensor& x, double factor));

}  // namespace stretto::cuda
