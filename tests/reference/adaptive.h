// The adaptive softmax of Grave et al. (2017), by loops over the targets, in double precision.
#pragma once

#include <vector>

#include "nn/models/adaptive.h"

namespace stretto::reference {

/// Returns −log p of each target in order (Grave et al.): hidden [.., d_model], targets [..].
std::vector<double> nll_by_loops(const Tensor& hidden, const Tensor& targets,
                                 const std::vector<nn::AdaptiveCluster>& clusters);

}  // namespace stretto::reference
