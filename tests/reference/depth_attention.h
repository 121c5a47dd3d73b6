// Attention over depth, in loops.
#pragma once

#include <vector>

#include "core/tensor.h"

namespace stretto::reference {

/// Returns Σ_s w_s v_s [B, L, d] with v_s = s / √(mean(s²) + 1e-6) and w = softmax_s(query · v_s / √d),
/// of sources [B, L, d] and a query [d].
Tensor mixed_over_depth(const std::vector<Tensor>& sources, const Tensor& query);

}  // namespace stretto::reference
