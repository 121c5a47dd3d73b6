// Layer norm and RMS norm on the device; contiguous, f32, f64 or bf16.
#pragma once

#include "kernel.h"

namespace stretto::cuda {

/// y = (x − shift) · scale · weight + bias for rows of x [.., D], with the row's mean as shift [N]
/// where that is defined, and scale [N] = 1/√(mean (x − shift)² + eps); both are written, in f32
/// (f64 for f64). weight and bias [D] may be undefined.
STRETTO_KERNEL(Tensor norm(const Tensor& x, const Tensor& weight, const Tensor& bias, double eps,
                           const Tensor& shift, const Tensor& scale));
/// dx from the gradient g of y; Σ g·x̂ and Σ g, both [D], to dw and db where wanted.
STRETTO_KERNEL(Tensor norm_backward(const Tensor& x, const Tensor& weight, const Tensor& g,
                                    const Tensor& shift, const Tensor& scale, bool want_dw,
                                    bool want_db, Tensor& dw, Tensor& db));

}  // namespace stretto::cuda
