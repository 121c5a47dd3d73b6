// Disentangled attention (DeBERTa): scores of content against content, content against position,
// and position against content.
//
// Reference: tests/reference/disentangled.cpp, disentangled_bias()
// Reference: tests/reference/published/deberta.cpp, deberta_v2()
#pragma once

#include <optional>
#include <utility>

#include "../dropout.h"
#include "../linear.h"
#include "relative_table.h"

namespace stretto::nn {

/// Options of Disentangled.
struct DisentangledOptions {
  /// Distance at which buckets end; without buckets also k, the largest distance with its own row.
  int64_t max_distance = 512;
  /// k, the number of buckets (v2 and v3: 256); 0, as in the paper and v1: one row per distance.
  int64_t buckets = 0;
  bool content_to_position = true;  ///< Adds the term q_i · K[δ(i, j)].
  bool position_to_content = true;  ///< Adds the term k_j · Q[δ(j, i)].
  bool mirrored = true;  ///< Q[δ(j, i)] as in the paper; false: Q[δ(i, j)] as in the authors' code.
  /// Projects the rows by the attention's own q and k (share_att_key, the checkpoints of v2 and
  /// v3).
  bool shared_projections = false;
  bool key_bias = false;  ///< `k` has a bias, as in the authors' code; results do not depend on it.
  double dropout = 0;     ///< Dropout of the rows, in training.
  Tensor rows = {};       ///< Parameter of another module to share as table; by default a new one.

  /// Returns 2k, the number of rows of the table.
  int64_t n_rows() const { return 2 * (buckets > 0 ? buckets : max_distance); }
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
/// In the papers all layers share one table: pass the table of its owner as Options::rows. If the
/// owner normalizes the table, it passes the result to all layers as ForwardContext::shared_table
/// [2k, d_model], which replaces the rows. By default the encoding has its own projections `k` and
/// `q`; `k` has no bias, because a bias would add the same to all scores of a query.
///
/// Meant for bidirectional attention, but accepts causal masks and prefixes. position_to_content
/// computes a dense bias [B, H, M, N].
class Disentangled : public PositionalEncoding {
 public:
  using Options = DisentangledOptions;  ///< Options of the constructor.
  /// Registers `rows`, normal with standard deviation 0.02 unless shared, and the projections.
  /// Throws if both terms are disabled, if buckets and max_distance do not fit together, or for
  /// shared_projections of an attention with fewer key heads than query heads.
  Disentangled(Module& parent, HeadShape shape, Options options);
  void apply(AttentionInputs& inputs) const override;
  /// Returns the traits of an encoding with these options.
  static PositionTraits traits(const Options& o) {
    return {.scores = true, .relative = true, .dense = o.position_to_content};
  }
  std::string label() const override;

  const Options options;  ///< As passed to the constructor.
  const Tensor rows;      ///< Table [2k, d_model].
  /// Projection to K; empty without content_to_position and with shared_projections.
  std::optional<Linear> k;
  /// Projection to Q; empty without position_to_content and with shared_projections.
  std::optional<Linear> q;
  Dropout dropout{*this, "dropout", {options.dropout}};  ///< Dropout of the rows.

 private:
  Tensor table(HeadShape shape);
  RelativeTable per_distance(const Tensor& projected, const AttentionInputs& inputs,
                             int64_t sign) const;

  const HeadShape shape_;
  const Linear* to_k_ = nullptr;  // `k`, or that of the attention; null without the term
  const Linear* to_q_ = nullptr;  // likewise
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
