// Normalization over the last dimension. Statistics are f32 (f64 for f64).
#pragma once

#include "../core/random.h"
#include "../core/tensor.h"

namespace stretto {

/// Computes (x − mean) / √(var + eps) · weight + bias over the last dimension, with the biased
/// variance (Ba et al., 2016). weight and bias are [D] in the dtype of x, or undefined.
Tensor layer_norm(const Tensor& x, const Tensor& weight = {}, const Tensor& bias = {},
                  double eps = 1e-5);

/// Computes x / √(mean(x²) + eps) · weight over the last dimension (Zhang & Sennrich, 2019). weight
/// is [D] in the dtype of x, or undefined.
Tensor rms_norm(const Tensor& x, const Tensor& weight = {}, double eps = 1e-6);

/// The dropout of a residual branch, as in dropout_add (ops/dropout.h).
struct ResidualDropout {
  double p = 0;        ///< Probability of dropping an element of x, 0 to 1.
  RandomKey key = {};  ///< The key of dropout; not used if p is 0.
};

/// Adds a residual branch and normalizes the sum: returns s = residual + dropout(x, p) and
/// layer_norm(s, weight, bias, eps). x and residual have one shape and dtype. On CUDA this is one
/// op, which reads and writes each tensor once.
Tensors add_layer_norm(const Tensor& x, const Tensor& residual, ResidualDropout options,
                       const Tensor& weight = {}, const Tensor& bias = {}, double eps = 1e-5);
/// Returns s = residual + dropout(x, p) and rms_norm(s, weight, eps).
Tensors add_rms_norm(const Tensor& x, const Tensor& residual, ResidualDropout options,
                     const Tensor& weight = {}, double eps = 1e-6);

}  // namespace stretto
