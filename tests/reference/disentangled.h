// Scores between content and position, one pair at a time (He et al. 2021, DeBERTa).
#pragma once

#include <functional>

#include "tests/reference/attention.h"

namespace stretto::reference {

/// δ(i, j) of eq. 3 from the distance i − j, for 2k rows.
int64_t delta(int64_t distance, int64_t k);

/// The row of a table that a query at position i and a key at j use, from the distance i − j.
using RowOf = std::function<int64_t(int64_t distance)>;

/// The last two terms of eq. 4, q_i · K[row] + k_j · Q[row], times `scale`: q [B, H, M, D],
/// k [B, G, N, D], tables [H or 1, R, D] or undefined for none → [B, H, M, N]. Queries are the last
/// M of the N positions. As a dense bias of attention these complete the scores.
Tensor disentangled_bias(const Tensor& q, const Tensor& k, const Tensor& key_table,
                         const RowOf& key_row, const Tensor& query_table, const RowOf& query_row,
                         double scale);

}  // namespace stretto::reference
