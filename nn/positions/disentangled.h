// Disentangled attention (DeBERTa): scores of content against content, content against position,
// and position against content.
//
// Reference: tests/reference/disentangled.cpp, disentangled_bias()
// Reference: tests/reference/published/deberta.cpp, deberta_v2()
#pragma once

#include <optional>
#include <utility>

#include "../linear.h"
#include "relative_table.h"

namespace stretto::nn {

/// Options of Disentangled.
struct DisentangledOptions {
  /// Distance at which buckets end; without buckets also k, the largest distance with its own row.
  int64_t max_distance = 512;
  int64_t buckets = 256;            ///< k, the number of buckets; 0 (v1): one row per distance.
  bool content_to_position = true;  ///< Adds the term q_i · K[δ(i, j)].
  bool position_to_content = true;  ///< Adds the term k_j · Q[δ(j, i)].
  bool mirrored = true;  ///< Q[δ(j, i)] as in the paper; false: Q[δ(i, j)] as in the authors' code.
  Tensor rows = {};      ///< Parameter of another module to share as table; by default a new one.
};

/// Disentangled attention of DeBERTa (He et al. 2021a, eqs. 3 and 4; unchanged in
/// v3: He et al. 2021b):
///
///     score(i, j) = (q_i · k_j + q_i · K[δ(i, j)] + k_j · Q[δ(j, i)]) / √(D·(1 + terms))
///
/// with K and Q [H, 2k, D] two projections of `rows` [2k, d_model], `terms` the number of enabled
/// position terms and δ(i, j) = clamp(i − j + k, 0, 2k − 1) for query i and key j: low rows are for
/// keys after the query. Since v2 distances are first mapped to buckets (log_bucket). An explicit
/// MultiHeadAttentionOptions::scale replaces 1/√(D·(1 + terms)).
///
/// In the papers all layers share one table: pass the table of its owner as Options::rows. The
/// encoding has its own projections `k` and `q`, as the papers have without share_att_key; sharing
/// the projections of the attention is not supported. `k` has no bias, because a bias would add the
/// same to all scores of a query.
///
/// Meant for bidirectional attention, but accepts causal masks. position_to_content computes a
/// dense bias [B, H, M, N].
class Disentangled : public PositionalEncoding {
 public:
  using Options = DisentangledOptions;  ///< Options of the constructor.
  /// Registers `rows`, normal with standard deviation 0.02 unless shared, and the projections.
  /// Throws if both terms are disabled or buckets and max_distance do not fit together.
  Disentangled(Module& parent, HeadShape shape, Options options);
  void apply(AttentionInputs& inputs) const override;
  bool is_relative() const override { return true; }
  bool is_dense() const override { return q.has_value(); }
  std::string label() const override;

  const Options options;    ///< As passed to the constructor.
  const Tensor rows;        ///< Table [2k, d_model].
  std::optional<Linear> k;  ///< Projection to K; empty without content_to_position.
  std::optional<Linear> q;  ///< Projection to Q; empty without position_to_content.

 private:
  Tensor table(HeadShape shape);
  RelativeTable per_distance(const Linear& projection, const AttentionInputs& inputs,
                             int64_t sign) const;

  const HeadShape shape_;
};

/// Returns a factory of Disentangled.
inline MakePositionalEncoding disentangled(Disentangled::Options options = {}) {
  return positional_encoding<Disentangled>(std::move(options));
}

/// Returns the bucket of a signed distance d, odd in d: d itself up to mid = buckets / 2, then
/// mid + ⌈(mid − 1) · log(|d| / mid) / log((max_distance − 1) / mid)⌉, which reaches 2·mid − 1 at
/// max_distance − 1 and keeps growing after it (the code of DeBERTa v2).
int64_t log_bucket(int64_t distance, int64_t buckets, int64_t max_distance);

}  // namespace stretto::nn
