// Mixture of experts, one token and one expert at a time.
#pragma once

#include "nn/models/moe.h"

namespace stretto::reference {

/// The output of nn::MoE for x [T, d_model] in f64.
Tensor moe(const nn::MoE& module, const Tensor& x);

}  // namespace stretto::reference
