// Cross-entropy of rows on the device. Contiguous f32, f64 or bf16; computed in f32 (f64 for f64).
#pragma once

#include "runtime/kernel.h"

namespace stretto::cuda {

/// Losses [N] of logits x [N, V] for target ids [N] (i64, in range, or `ignored`: loss 0) with
/// label smoothing epsilon. Writes each row's maximum and Σ exp(x − maximum) to totals [N, 2].
/// Losses and totals are f32 (f64 for f64).
STRETTO_KERNEL(Tensor cross_entropy(const Tensor& x, const Tensor& ids, int64_t ignored,
                                    double epsilon, const Tensor& totals));
/// dx from these and the losses' gradients g [N], f32 (f64 for f64).
STRETTO_KERNEL(Tensor cross_entropy_backward(const Tensor& x, const Tensor& ids, int64_t ignored,
                                             double epsilon, const Tensor& totals,
                                             const Tensor& g));

}  // namespace stretto::cuda
