// The adaptive softmax of Grave et al. (2017), one target at a time, by loops, in double precision.
#pragma once

#include <vector>

#include "nn/models/adaptive.h"

namespace stretto::reference {

/// −log p of each target: hidden [.., d_model] and targets [..] → one value per target, in order.
std::vector<double> nll_by_loops(const Tensor& hidden, const Tensor& targets,
                                 const std::vector<nn::AdaptiveCluster>& clusters);

}  // namespace stretto::reference
