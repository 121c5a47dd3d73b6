// Linear layers of groups of rows on the device.
#pragma once

#include "runtime/kernel.h"

namespace stretto::cuda {

/// x[r] · weights[e]ᵀ + biases[e], or with `transposed` x[r] · weights[e], for the rows offsets[e] ≤ r
/// < offsets[e + 1] of x [T, K]. The E weights have one shape, there are E biases or none; offsets
/// [E + 1] are in 0 … T. f32, f64 or bf16; x and the offsets are contiguous.
STRETTO_KERNEL(Tensor grouped_linear(const Tensor& x, const Tensors& weights, const Tensors& biases,
                                     const Tensor& offsets, bool transposed));
/// Σ g[r]ᵀ x[r] over the rows of each group: [E, out, in] for g [T, out] and x [T, in], contiguous.
/// The sums of g over the same rows are written to `biases` [E, out], unless it is undefined.
STRETTO_KERNEL(Tensor grouped_weight_gradients(const Tensor& g, const Tensor& x,
                                               const Tensor& offsets, const Tensor& biases));

}  // namespace stretto::cuda
