// Gradients of a linear layer's weight and bias. Internal to ops/.
#pragma once

#include "../core/tensor.h"

namespace stretto {

/// Gradients of a weight [out, in] and of a bias [out]; undefined if they are not wanted.
struct WeightGradients {
  Tensor weight, bias;
};

/// Returns gᵀ x and Σ g over the rows of g [N, out] and x [N, in], recorded on the tape; x may be
/// undefined if the weight's gradient is not wanted. In bf16 on a GPU one launch computes both,
/// unless they are recorded.
WeightGradients weight_gradients(const Tensor& g, const Tensor& x, bool want_weight,
                                 bool want_bias);

}  // namespace stretto
