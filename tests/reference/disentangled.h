// Scores between content and position, one pair at a time (He et al. 2021, DeBERTa). A distance is
// i − j here, query minus key, as in the paper.
#pragma once

#include <functional>

#include "tests/reference/attention.h"

namespace stretto::reference {

/// Returns δ(i, j) of eq. 3, a row of a table of 2k rows, from the distance i − j.
int64_t delta(int64_t distance, int64_t k);

/// Returns the row of a table for a query at position i and a key at position j, from i − j.
using RowOf = std::function<int64_t(int64_t distance)>;

/// Computes the last two terms of eq. 4, q_i · K[row] + k_j · Q[row], times `scale`, which complete
/// the scores as a dense bias: q [B, H, M, D], k [B, G, N, D], tables [H or 1, R, D] →
/// [B, H, M, N]. An undefined table drops its term. The queries are the last M of the N positions.
Tensor disentangled_bias(const Tensor& q, const Tensor& k, const Tensor& key_table,
                         const RowOf& key_row, const Tensor& query_table, const RowOf& query_row,
                         double scale);

}  // namespace stretto::reference
