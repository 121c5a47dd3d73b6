// Relative attention as the papers write it: one short function per formula, in double precision,
// without a thought for speed or memory. The library's fast forms must agree with these.
//
//   Shaw et al. 2018    Self-Attention with Relative Position Representations
//   Huang et al. 2018   Music Transformer
//   Dai et al. 2019     Transformer-XL
//
// Letters are theirs: L positions, D numbers per position, Q [L, D] queries, E the table of
// relative positions with its oldest row first, N the size of a block of local attention.
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

/// The values of a 2-d tensor, and back.
Matrix matrix(const Tensor& x);
Tensor tensor(const Matrix& x);

/// A Bᵀ.
Matrix times_transposed(const Matrix& a, const Matrix& b);

/// S_rel = Q Rᵀ with R [L, L, D] written out: R[i, j] is the row of E for relative position j − i,
/// zeros where E has none (Huang et al. 2018, §3.4, after Shaw et al. 2018, eq. 3). E [L, D] knows
/// the past −(L − 1) … 0, E [2L − 1, D] also the future. This is the O(L² D) memory that the skew
/// avoids.
Matrix relative_logits_by_gather(const Matrix& q, const Matrix& e);

/// The same with R[i, j] = w[clip(j − i, −k, k)], w [2k + 1, D] (Shaw et al. 2018, eq. 3 and §3.2).
Matrix clipped_logits_by_gather(const Matrix& q, const Matrix& w);

/// Q Eᵀ [L, L] with its upper left triangle zeroed: what speaks of keys before the first one
/// (Huang et al. 2018, fig. 1).
Matrix mask_upper_left(const Matrix& qe);

/// Q Eᵀ [L, L] → S_rel [L, L] by pad, reshape, slice (Huang et al. 2018, §3.4.1). Right on and
/// below the diagonal. Above it lie one 0 per row and numbers of the next query, for the causal
/// mask to hide.
Matrix skew(const Matrix& qe);

/// Q Eᵀ [N, 2N − 1] for a block of queries against the block before, with both triangles zeroed
/// that lie outside of it (Huang et al. 2018, §3.5).
Matrix mask_both_corners(const Matrix& qe);

/// Q Eᵀ [N, 2N − 1] → S_rel [N, N] by pad, flatten, pad, reshape, slice (Huang et al. 2018, §3.5).
/// Every entry is right. With N = L and E for −(L − 1) … L − 1 this is also the skew without a
/// mask.
Matrix skew_local(const Matrix& qe);

/// S_rel [L, L] of local attention in blocks of N, which divides L, from E [2N, D]: a block of
/// queries sees itself causally and all of the block before. 0 where there is nothing to see.
Matrix local_logits(const Matrix& q, const Matrix& e, int64_t n);

/// X [M, N] with columns for the past −(N − 1) … 0 → S_rel [M, N] for the last M of N positions, by
/// pad, reshape, slice, reshape (Dai et al. 2019, app. B). Right where the key is not in the
/// future.
Matrix skew_with_memory(const Matrix& x);

/// Attention by loops, straight from the definition in ops/attention/attention.h; without dropout.
/// Inputs of any floating dtype, result f64.
Tensor attention(const Tensor& queries, const Tensor& keys, const Tensor& values,
                 const AttentionOptions& options = {});

/// Its weights [B, H, M, N].
Tensor attention_weights(const Tensor& queries, const Tensor& keys,
                         const AttentionOptions& options = {});

}  // namespace stretto::reference
