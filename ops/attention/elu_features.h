// The feature map of the first linear attention, elu(x) + 1 (Katharopoulos et al. 2020, eq. 7). The
// module is nn::EluPlusOne.
//
// Reference: tests/reference/linear_attention.cpp, elu_plus_one()
#pragma once

#include "../../core/tensor.h"

namespace stretto {

/// x + 1 where x > 0, else e^x, of any floating dtype, in one pass that keeps the result alone.
Tensor elu_features(const Tensor& x);

}  // namespace stretto
