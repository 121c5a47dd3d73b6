// Self-attention with relative position representations (Shaw et al. 2018).
#pragma once

#include "tests/reference/attention.h"

namespace stretto::reference {

/// Computes eqs. 3 and 4 for one head with a_ij = w[clip(j − i, −k, k) + k] (§3.2): q [M, D],
/// k [N, D], v [N, Dv], w_keys [2k + 1, D], w_values [2k + 1, Dv] or without rows → [M, Dv]. The
/// queries are the last M of the N positions.
Matrix shaw_attention(const Matrix& q, const Matrix& k, const Matrix& v, const Matrix& w_keys,
                      const Matrix& w_values, bool causal = false);

}  // namespace stretto::reference
