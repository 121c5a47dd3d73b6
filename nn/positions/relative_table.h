// Positions that are learned tables over relative positions.
//
// Reference: tests/reference/relative_table.cpp, shaw_attention()
// Reference: tests/reference/attention.cpp, relative_logits_by_gather()
#pragma once

#include "positional_encoding.h"

namespace stretto::nn {

struct MusicRelativeOptions {
  int64_t max_length = 0;  // distances 0 … max_length − 1 have a row
  bool shared_by_heads = false;
  bool bidirectional = false;  // for attention that is not causal
  OutOfRange out_of_range = OutOfRange::zero;
  int64_t block = 0;  // > 0: local attention, a query sees its block and the one before (§3.5)
};

/// Relative attention of the Music Transformer (Huang et al. 2018, §3.4): q_i · E[r] is added to
/// the score of the key at relative position r before scaling. `table` is [H, R, D] or, shared by
/// the heads, [1, R, D], starting normal with standard deviation D^−½; R = max_length for the past
/// alone (last row = the query's own position), 2·max_length − 1 for both sides.
class MusicRelative : public PositionalEncoding {
 public:
  using Options = MusicRelativeOptions;
  MusicRelative(Module& parent, HeadShape shape, Options options);
  void apply(AttentionInputs& inputs) const override;
  std::string label() const override;

  const Options options;
  const Tensor table;
};

inline MakePositionalEncoding music_relative(MusicRelative::Options options) {
  return positional_encoding<MusicRelative>(options);
}

struct ShawRelativeOptions {
  int64_t max_distance = 16;     // k; the paper: 16, in its big model 8
  bool values = true;            // whether values have a table too
  bool shared_by_heads = false;  // the paper: not shared, in its big model shared
};

/// Relative position representations (Shaw et al. 2018, §3.2, eqs. 3 and 4): row
/// clip(r, −k, k) + k of `keys` [H, 2k + 1, D] is added to the key at relative position r, that of
/// `values` [H, 2k + 1, Dv] to its value; [1, ..] where the heads share them. The past comes first.
/// A causal call leaves the rows of the future idle. The paper does not say how tables start: each
/// head's [2k + 1, D] does so as a weight, xavier_uniform_ (tensor2tensor: uniform with unit
/// scaling).
class ShawRelative : public PositionalEncoding {
 public:
  using Options = ShawRelativeOptions;
  ShawRelative(Module& parent, HeadShape shape, Options options);
  void apply(AttentionInputs& inputs) const override;
  std::string label() const override;

  const Options options;
  const Tensor keys;
  const Tensor values;  // undefined without
};

inline MakePositionalEncoding shaw_relative(ShawRelative::Options options = {}) {
  return positional_encoding<ShawRelative>(options);
}

struct BertRelativeOptions {
  int64_t max_length = 0;  // distances 0 … max_length − 1 have a row, on both sides
  bool keys_too = false;
};

/// The position embeddings "relative_key" (after Shaw et al. 2018) and, with keys_too,
/// "relative_key_query" (Huang et al. 2020, method 4) of the BERT family in Hugging Face's
/// Transformers: before scaling q_i · E[r], and with keys_too also k_j · E[r], is added to the
/// score. One `table` [1, 2·max_length − 1, D] for all heads and both terms, the past first (their
/// `distance_embedding` has the reverse order), starting normal with standard deviation 0.02. A
/// relative position beyond it is an error. With keys_too there are M × N scores.
class BertRelative : public PositionalEncoding {
 public:
  using Options = BertRelativeOptions;
  BertRelative(Module& parent, HeadShape shape, Options options);
  void apply(AttentionInputs& inputs) const override;
  bool is_dense() const override { return options.keys_too; }
  std::string label() const override;

  const Options options;
  const Tensor table;
};

inline MakePositionalEncoding bert_relative(BertRelative::Options options) {
  return positional_encoding<BertRelative>(options);
}

/// The key's side of a score: adds scale · k_j · Q[r] to the call's dense bias, `table` being
/// Q [H or 1, R, D]. Beyond it the policy `error` is `zero`.
void add_key_side_term(AttentionInputs& inputs, const RelativeTable& table);

}  // namespace stretto::nn
