// Layer norm and RMS norm on the device; contiguous, f32, f64 or bf16.
#pragma once

#include "runtime/kernel.h"

namespace stretto::cuda {

/// A row whose squared mean exceeds this multiple of its variance (+ eps) is normalized with its
/// mean in two parts: the rounding error of a single part would be visible in x̂.
inline constexpr int far_mean = 256;

/// y = ((x − shift) − rest) · scale · weight + bias for rows of x [.., D]. Writes scale [N] =
/// 1/√(mean ((x − shift) − rest)² + eps), and, if `means` [2, N] is defined, shift and rest to it:
/// the row's mean and its rounding error, 0 unless the mean is large (far_mean). Both in f32 (f64
/// for f64). weight and bias [D] may be undefined.
STRETTO_KERNEL(Tensor norm(const Tensor& x, const Tensor& weight, const Tensor& bias, double eps,
                           const Tensor& means, const Tensor& scale));
/// dx from the gradient g of y, plus `onto` [.., D] unless it is undefined. Writes Σ g·x̂ and Σ g,
/// both [D], to dw and db if they are wanted.
STRETTO_KERNEL(Tensor norm_backward(const Tensor& x, const Tensor& weight, const Tensor& g,
                                    const Tensor& onto, const Tensor& means, const Tensor& scale,
                                    bool want_dw, bool want_db, Tensor& dw, Tensor& db));

}  // namespace stretto::cuda
