// Normalization over the last dimension. Statistics are f32 (f64 for f64).
#pragma once

#include "../core/tensor.h"

namespace stretto {

/// Computes (x − mean) / √(var + eps) · weight + bias over the last dimension, with the biased
/// variance (Ba et al., 2016). weight and bias are [D] in the dtype of x, or undefined.
Tensor layer_norm(const Tensor& x, const Tensor& weight = {}, const Tensor& bias = {},
                  double eps = 1e-5);

/// Computes x / √(mean(x²) + eps) · weight over the last dimension (Zhang & Sennrich, 2019). weight
/// is [D] in the dtype of x, or undefined.
Tensor rms_norm(const Tensor& x, const Tensor& weight = {}, double eps = 1e-6);

}  // namespace stretto
