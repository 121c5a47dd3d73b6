// The feature map of the first linear attention, elu(x) + 1 (Katharopoulos et al. 2020, eq. 7). The
// module is nn::EluPlusOne.
//
// Reference: tests/reference/linear_attention.cpp, elu_plus_one()
#pragma once

#include "../../core/tensor.h"

namespace stretto {

/// Computes elu(x) + 1, that is x + 1 for x > 0, else e^x, in any floating-point dtype. Only the
/// result is saved for the backward pass.
Tensor elu_features(const Tensor& x);

}  // namespace stretto
