// Layer norm and RMS norm on the device; contiguous, f32, f64 or bf16.
#pragma once

#include "runtime/kernel.h"

namespace stretto::cuda {

/// A row whose squared mean is more than this many variances (+ eps) is normalized by its mean in
/// two parts: what one rounds off would show in x̂.
inline constexpr int far_mean = 256;

/// y = ((x − shift) − rest) · scale · weight + bias for rows of x [.., D], and scale [N] =
/// 1/√(mean ((x − shift) − rest)² + eps). `means` [2, N] gets shift and rest where it is defined:
/// the row's mean and what that lacks for being rounded, 0 unless the mean is far (far_mean). Both
/// are written, in f32 (f64 for f64). weight and bias [D] may be undefined.
STRETTO_KERNEL(Tensor norm(const Tensor& x, const Tensor& weight, const Tensor& bias, double eps,
                           const Tensor& means, const Tensor& scale));
/// dx from the gradient g of y; Σ g·x̂ and Σ g, both [D], to dw and db where wanted.
STRETTO_KERNEL(Tensor norm_backward(const Tensor& x, const Tensor& weight, const Tensor& g,
                                    const Tensor& means, const Tensor& scale, bool want_dw,
                                    bool want_db, Tensor& dw, Tensor& db));

}  // namespace stretto::cuda
