// Self-attention with relative position representations (Shaw et al. 2018), computed in three ways:
// equation by equation, with a gathered table row for every pair of positions, and with the paper's
// efficient matrix products.
#pragma once

#include "tests/reference/attention.h"

namespace stretto::reference {

/// Computes eqs. 3 and 4 for one head with a_ij = w[clip(j − i, −k, k) + k] (§3.2): q [M, D],
/// k [N, D], v [N, Dv], w_keys [2k + 1, D], w_values [2k + 1, Dv] or without rows → [M, Dv]. The
/// queries are the last M of the N positions.
Matrix shaw_attention(const Matrix& q, const Matrix& k, const Matrix& v, const Matrix& w_keys,
                      const Matrix& w_values, bool causal = false);

/// Computes the same in differentiable ops, for q [B, H, M, D], k [B, H, N, D], v [B, H, N, Dv] and
/// tables [H or 1, 2k + 1, ..] → [B, H, M, Dv]. w_values may be undefined. The rows of all pairs of
/// positions are in memory, [H or 1, M, N, D].
Tensor shaw_by_gather(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& w_keys,
                      const Tensor& w_values, bool causal = false);

/// Computes the same as §3.3 does: eq. 5 splits the score in two, and the term of the positions is
/// one product of [B·H, D] and [D, N] per query, because all sequences and heads use the same N
/// rows (one product of [B, D] and [D, N] per query and head if each head has its own table).
Tensor shaw_by_products(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& w_keys,
                        const Tensor& w_values, bool causal = false);

}  // namespace stretto::reference
