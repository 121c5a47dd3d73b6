// Self-attention with relative position representations (Shaw et al. 2018), in the three ways it
// can be computed: the equations one by one, the gather of a row for every pair of positions, and
// the paper's efficient form.
#pragma once

#include "tests/reference/attention.h"

namespace stretto::reference {

/// Eqs. 3 and 4 for one head with a_ij = w[clip(j − i, −k, k) + k] (§3.2): q [M, D], k [N, D],
/// v [N, Dv], w_keys [2k + 1, D], w_values [2k + 1, Dv] or without rows. Queries are the last M of
/// the N positions.
Matrix shaw_attention(const Matrix& q, const Matrix& k, const Matrix& v, const Matrix& w_keys,
                      const Matrix& w_values, bool causal = false);

/// The same in differentiable ops, for q [B, H, M, D], k [B, H, N, D], v [B, H, N, Dv] and tables
/// [H or 1, 2k + 1, ..], w_values may be undefined: a row for each pair of positions stands in
/// memory, [H or 1, M, N, D].
Tensor shaw_by_gather(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& w_keys,
                      const Tensor& w_values, bool causal = false);

/// The same as in §3.3: eq. 5 splits the score in two, and the term of the positions is one product
/// of [B·H, D] and [D, N] for each query, as all sequences and heads use the rows of its N pairs
/// ([B, D] and [D, N] for each query and head where the heads do not share them).
Tensor shaw_by_products(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& w_keys,
                        const Tensor& w_values, bool causal = false);

}  // namespace stretto::reference
