// Normalisation over the last dimension. Statistics are in f32 (f64 for f64).
#pragma once

#include "../core/tensor.h"

namespace stretto {

/// (x − mean) / √(var + eps) · weight + bias over the last dimension, biased variance (Ba et al.,
/// 2016). weight and bias [D] may be undefined.
Tensor layer_norm(const Tensor& x, const Tensor& weight = {}, const Tensor& bias = {},
                  double eps = 1e-5);

/// x / √(mean(x²) + eps) · weight over the last dimension (Zhang & Sennrich, 2019).
Tensor rms_norm(const Tensor& x, const Tensor& weight = {}, double eps = 1e-6);

}  // namespace stretto
