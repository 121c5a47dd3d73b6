// Cross-entropy of rows on the device; contiguous, f32, f64 or bf16, computed in f32 (f64 for f64).
#pragma once

#include "runtime/kernel.h"

namespace stretto::cuda {

/// Losses [N] of logits x [N, V] for targets ids [N] (i64, in range or `ignored`: 0), smoothed by
/// epsilon; the row's maximum and Σ exp(x − maximum) go to totals [N, 2]. Both in the wide type.
STRETTO_KERNEL(Tensor cross_entropy(const Tensor& x, const Tensor& ids, int64_t ignored,
                                    double epsilon, const Tensor& totals));
/// dx from these and the gradients g [N] of the losses, in the wide type.
STRETTO_KERNEL(Tensor cross_entropy_backward(const Tensor& x, const Tensor& ids, int64_t ignored,
                                             double epsilon, const Tensor& totals,
                                             const Tensor& g));

}  // namespace stretto::cuda
