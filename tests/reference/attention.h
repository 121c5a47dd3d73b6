// Relative attention as the papers write it: one short function per formula, in double precision,
// without regard to speed or memory. The library's implementations are tested against these.
//
//   Shaw et al. 2018    Self-Attention with Relative Position Representations
//   Huang et al. 2018   Music Transformer
//   Dai et al. 2019     Transformer-XL
//
// The symbols are those of the papers: L positions, head dimension D, queries Q [L, D], and E, the
// table of relative positions, whose first row is the most distant past. N is the block size of
// local attention. A relative position is j − i, key minus query: negative for the past.
#pragma once

#include <cstdint>
#include <vector>

#include "ops/attention/attention.h"

namespace stretto::reference {

/// A row-major matrix.
struct Matrix {
  int64_t rows = 0, columns = 0;
  std::vector<double> values = std::vector<double>(size_t(rows * columns));

  double& operator()(int64_t i, int64_t j) { return values[size_t(i * columns + j)]; }
  double operator()(int64_t i, int64_t j) const { return values[size_t(i * columns + j)]; }
  bool operator==(const Matrix&) const = default;
};

/// Returns the values of a tensor [rows, columns] as a matrix.
Matrix matrix(const Tensor& x);
/// Returns a matrix as an f64 tensor [rows, columns].
Tensor tensor(const Matrix& x);

/// Returns A Bᵀ: a [M, D], b [N, D] → [M, N].
Matrix times_transposed(const Matrix& a, const Matrix& b);

/// Computes S_rel = Q Rᵀ [L, L] with R [L, L, D] in memory: R[i, j] is the row of E for relative
/// position j − i, or zeros if E has no such row (Huang et al. 2018, §3.4, after Shaw et al. 2018,
/// eq. 3). E [L, D] has the relative positions −(L − 1) … 0, E [2L − 1, D] also 1 … L − 1. The skew
/// avoids this memory of O(L² D).
Matrix relative_logits_by_gather(const Matrix& q, const Matrix& e);

/// Computes the same with R[i, j] = w[clip(j − i, −k, k) + k], for w [2k + 1, D]
/// (Shaw et al. 2018, eq. 3 and §3.2).
Matrix clipped_logits_by_gather(const Matrix& q, const Matrix& w);

/// Returns Q Eᵀ [L, L] with zeros in its upper left triangle, whose entries belong to keys before
/// the first one (Huang et al. 2018, fig. 1).
Matrix mask_upper_left(const Matrix& qe);

/// Computes the causal skew, Q Eᵀ [L, L] → S_rel [L, L], by pad, reshape, slice
/// (Huang et al. 2018, §3.4.1). Correct on and below the diagonal. Above it, each row has one 0 and
/// then values of the next query, which the causal mask must hide.
Matrix skew(const Matrix& qe);

/// Returns Q Eᵀ [N, 2N − 1] of a block of queries and the block of keys before it, with zeros in
/// both triangles that belong to keys outside that block (Huang et al. 2018, §3.5).
Matrix mask_both_corners(const Matrix& qe);

/// Computes the local skew, Q Eᵀ [N, 2N − 1] → S_rel [N, N], by pad, flatten, pad, reshape, slice
/// (Huang et al. 2018, §3.5). Every entry is correct. With N = L and E for −(L − 1) … L − 1 it is
/// also the skew for bidirectional attention.
Matrix skew_local(const Matrix& qe);

/// Computes S_rel [L, L] of local attention in blocks of N positions from E [2N, D]; N divides L
/// (Huang et al. 2018, §3.5). A query attends to its own block causally and to the whole block
/// before. Hidden entries are 0.
Matrix local_logits(const Matrix& q, const Matrix& e, int64_t n);

/// Computes the skew with memory, X [M, N] → S_rel [M, N] for queries at the last M of N positions,
/// by pad, reshape, slice, reshape (Dai et al. 2019, app. B). The columns of X are the relative
/// positions −(N − 1) … 0. Correct for keys that are not after the query.
Matrix skew_with_memory(const Matrix& x);

/// Computes attention by the definition in ops/attention/attention.h, without dropout:
/// q [B, H, M, D], k [B, G, N, D], v [B, G, N, Dv] of any floating dtype → f64 [B, H, M, Dv].
Tensor attention(const Tensor& queries, const Tensor& keys, const Tensor& values,
                 const AttentionOptions& options = {});

/// Returns the softmax weights of the same attention, f64 [B, H, M, N].
Tensor attention_weights(const Tensor& queries, const Tensor& keys,
                         const AttentionOptions& options = {});

}  // namespace stretto::reference
