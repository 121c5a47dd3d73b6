// Disentangled attention: content against content, content against position, position against
// content.
//
// Reference: tests/reference/disentangled.cpp, disentangled_bias()
// Reference: tests/reference/published/deberta.cpp, deberta_v2()
#pragma once

#include <optional>
#include <utility>

#include "../linear.h"
#include "relative_table.h"

namespace stretto::nn {

struct DisentangledOptions {
  int64_t max_distance = 512;  // where buckets end; without them also k
  int64_t buckets = 256;       // k; 0: none, every distance has its row (v1)
  bool content_to_position = true;
  bool position_to_content = true;
  bool mirrored = true;  // Q[δ(j, i)] as the paper writes; false: Q[δ(i, j)] as its code computes
  Tensor rows = {};      // the parameter of another module to use as table
};

/// The position of DeBERTa (He et al. 2021a, eqs. 3 and 4; its v3 keeps it: He et al. 2021b):
///
///     score(i, j) = (q_i · k_j + q_i · K[δ(i, j)] + k_j · Q[δ(j, i)]) / √(D·(1 + terms))
///
/// with K and Q [H, 2k, D] two projections of `rows` [2k, d_model] and
/// δ(i, j) = clamp(i − j + k, 0, 2k − 1), i and j positions: the future comes first. Since v2
/// distances are first put into buckets (log_bucket). A scale that the attention was given replaces
/// 1/√(D·(1 + terms)).
///
/// In the papers one table serves all layers: give them one of its owner's as Options::rows. The
/// projections `k` (without a bias, which would add the same to all scores of a query) and `q` are
/// the position's own, the papers' form without share_att_key; sharing the attention's projections
/// is not possible here. `rows` start normal with standard deviation 0.02.
///
/// For both sides; a causal call works too. position_to_content makes M × N scores.
class Disentangled : public PositionalEncoding {
 public:
  using Options = DisentangledOptions;
  Disentangled(Module& parent, HeadShape shape, Options options);
  void apply(AttentionInputs& inputs) const override;
  bool is_dense() const override { return q.has_value(); }
  std::string label() const override;

  const Options options;
  const Tensor rows;
  std::optional<Linear> k, q;  // of the terms that there are

 private:
  Tensor table(HeadShape shape);
  RelativeTable per_lag(const Linear& projection, const AttentionInputs& inputs,
                        int64_t sign) const;

  const HeadShape shape_;
};

inline MakePositionalEncoding disentangled(Disentangled::Options options = {}) {
  return positional_encoding<Disentangled>(std::move(options));
}

/// The bucket of a signed distance d, odd in d: d itself up to mid = buckets / 2, then
/// mid + ⌈(mid − 1) · log(|d| / mid) / log((max_distance − 1) / mid)⌉, which reaches 2·mid − 1 at
/// max_distance − 1 and goes on growing (the code of DeBERTa v2).
int64_t log_bucket(int64_t distance, int64_t buckets, int64_t max_distance);

}  // namespace stretto::nn
