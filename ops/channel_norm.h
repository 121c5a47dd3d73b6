// Normalization over channels and spatial dimensions: x [N, C, …]. Statistics are f32 (f64 for
// f64). Reference: tests/reference/channel_norm.cpp, group_norm(), batch_norm()
#pragma once

#include "../core/tensor.h"

namespace stretto {

/// Computes (x − mean) / √(var + eps) · weight + bias, with mean and biased variance of each sample
/// and each of `groups` equal groups of channels (Wu & He, 2018): x [N, C, …]. weight and bias are
/// [C] in the dtype of x, or undefined. Throws unless `groups` divides C.
Tensor group_norm(const Tensor& x, Int groups, const Tensor& weight = {}, const Tensor& bias = {},
                  double eps = 1e-5);

/// Options of batch_norm().
struct BatchNormOptions {
  bool training = false;  ///< Normalizes with the statistics of the batch.
  double momentum = 0.1;  ///< Weight of the batch in the running statistics, 0 to 1.
  double eps = 1e-5;      ///< ε, added to the variance.
};

/// Computes (x − mean) / √(var + eps) · weight + bias for each channel (Ioffe & Szegedy, 2015): x
/// [N, C, …]. weight and bias are [C] or undefined.
///
/// In training, mean and biased variance are those of the batch, over all dimensions but C. The
/// running statistics, if they are defined, are updated in place: s ← (1 − momentum) · s + momentum
/// · (statistic of the batch), with the unbiased variance; under recompute() once. In evaluation
/// they replace the statistics of the batch and must be defined. They are [C] in f32 (f64 for f64),
/// without gradients. Throws in training if a channel has fewer than 2 values.
Tensor batch_norm(const Tensor& x, const Tensor& running_mean, const Tensor& running_var,
                  const Tensor& weight = {}, const Tensor& bias = {},
                  BatchNormOptions options = {});

}  // namespace stretto
