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

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
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

/// The elements of a tensor of any shape, read as x(b, h, i, d). All elements of an undefined tensor
/// are `otherwise`.
struct Values {
  explicit Values(const Tensor& x, double otherwise_ = 0) : otherwise(otherwise_) {
    if (!x.defined()) return;
    defined = true;
    shape = x.shape();
    at = x.to_vector<double>();
  }
  template <class... Index>
  double operator()(Index... index) const {
    if (!defined) return otherwise;
    int64_t position = 0, d = 0;
    ((position = position * shape[d++] + index), ...);
    return at[size_t(position)];
  }

  bool defined = false;
  Shape shape;
  std::vector<double> at;
  double otherwise;
};

// ---------------------------------------------------------------------------- softmax of scores
// Every reference of softmax attention is one of these loops over a function for the score of
// query i and key j.

/// The score of a hidden key.
inline constexpr double unseen = -std::numeric_limits<double>::infinity();

/// Returns the softmax of a query's scores, together with one more score, `sink`, that has no key.
/// Returns zeros if all keys are hidden.
std::vector<double> softmax(std::vector<double> scores, double sink = unseen);

/// Computes one head, y(i, d) = Σ_j a(i, j) value(i, j, d), where a(i, ·) is the softmax of
/// score(i, ·): M queries, N keys → [M, width], row-major.
template <class Score, class Value>
std::vector<double> attend(int64_t m, int64_t n, int64_t width, Score score, Value value,
                           double sink = unseen) {
  std::vector<double> y;
  for (int64_t i = 0; i < m; ++i) {
    std::vector<double> weight;
    for (int64_t j = 0; j < n; ++j) weight.push_back(score(i, j));
    weight = softmax(weight, sink);
    for (int64_t d = 0; d < width; ++d) {
      double sum = 0;
      for (int64_t j = 0; j < n; ++j)
        if (weight[size_t(j)] != 0) sum += weight[size_t(j)] * value(i, j, d);
      y.push_back(sum);
    }
  }
  return y;
}

/// Computes all heads from score(head, i, j) and v [N, groups · D], and joins them → [M, heads · D].
/// Head h has the values of group h · groups / heads.
Matrix attend(int64_t m, int64_t heads, const Matrix& v, int64_t groups,
              const std::function<double(int64_t head, int64_t i, int64_t j)>& score);

/// Returns the product of head head_a in row i of a and head head_b in row j of b, d features each.
double dot(const Matrix& a, int64_t i, int64_t head_a, const Matrix& b, int64_t j, int64_t head_b,
           int64_t d);

// ---------------------------------------------------------------------------- relative scores

/// Returns A Bᵀ: a [M, D], b [N, D] → [M, N].
Matrix times_transposed(const Matrix& a, const Matrix& b);

/// Computes S_rel = Q Rᵀ [L, L], where R[i, j] is the row of E for relative position j − i, or zeros
/// if E has no such row (Huang et al. 2018, §3.4, after Shaw et al. 2018, eq. 3). E [L, D] has the
/// relative positions −(L − 1) … 0, E [2L − 1, D] also 1 … L − 1.
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

// ---------------------------------------------------------------------------- attention

/// Computes attention by the definition in ops/attention/attention.h, without dropout:
/// q [B, H, M, D], k [B, G, N, D], v [B, G, N, Dv] of any floating dtype → f64 [B, H, M, Dv].
Tensor attention(const Tensor& queries, const Tensor& keys, const Tensor& values,
                 const AttentionOptions& options = {});

/// Returns the softmax weights of the same attention, f64 [B, H, M, N].
Tensor attention_weights(const Tensor& queries, const Tensor& keys,
                         const AttentionOptions& options = {});

}  // namespace stretto::reference
