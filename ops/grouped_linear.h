// Linear layers of groups of rows, such as the experts of a mixture.
#pragma once

#include "../core/tensor.h"

namespace stretto {

/// Computes a linear layer for each group of rows: y[r] = x[r] · weights[e]ᵀ + biases[e] for the rows
/// offsets[e] ≤ r < offsets[e + 1]. x [T, in], E weights [out, in], E biases [out] or none, offsets
/// [E + 1] (i64, on the device of x) → [T, out]. Operands have one floating-point dtype; bf16
/// products are summed in f32.
///
/// The offsets ascend from 0 to T. An empty group is accepted; its gradients are 0. On a GPU the host
/// reads the offsets only for second derivatives. An offset outside 0 … T is an error there, too, but
/// descending offsets are not: rows outside all groups then have no defined result.
Tensor grouped_linear(const Tensor& x, const Tensors& weights, const Tensors& biases,
                      const Tensor& offsets);

}  // namespace stretto
