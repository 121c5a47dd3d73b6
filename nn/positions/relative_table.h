// Encodings with learned tables over relative positions.
//
// Reference: tests/reference/relative_table.cpp, shaw_attention()
// Reference: tests/reference/attention.cpp, relative_logits_by_gather()
#pragma once

#include "../linear.h"
#include "positional_encoding.h"

namespace stretto::nn {

/// Options of MusicRelative.
struct MusicRelativeOptions {
  int64_t max_length = 0;        ///< Distances 0 … max_length − 1 have a row; at least 1.
  bool shared_by_heads = false;  ///< One table for all heads instead of one per head.
  /// Rows for keys after the query too; without them, attention without a causal mask is an error.
  bool bidirectional = false;
  OutOfRange out_of_range = OutOfRange::zero;  ///< Treatment of keys further away than the table.
  /// > 0: local attention (§3.5). A query attends to its own block of this many positions and to
  /// the block before.
  int64_t block = 0;
};

/// Relative attention of the Music Transformer (Huang et al. 2018, §3.4): q_i · E[r] is added to
/// the score of the key at relative position r before scaling.
class MusicRelative : public PositionalEncoding {
 public:
  using Options = MusicRelativeOptions;  ///< Options of the constructor.
  /// Registers `table`, normal with standard deviation D^−½.
  MusicRelative(Module& parent, HeadShape shape, Options options);
  void apply(AttentionInputs& inputs) const override;
  /// Returns the traits of an encoding with these options.
  static PositionTraits traits(const Options& o) {
    const bool limited = o.block == 0 && o.out_of_range == OutOfRange::error;
    return {.bidirectional = o.block == 0,
            .memory = o.block == 0,  // a memory of fewer than two blocks is an error
            .scores = true,
            .max_positions = limited ? o.max_length : INT64_MAX,
            .relative = o.block == 0};
  }
  std::string label() const override;

  const Options options;  ///< As passed to the constructor.
  /// E [H, R, D], or [1, R, D] if shared by the heads. R = max_length, and the last row is the
  /// query's own position; bidirectional: R = 2·max_length − 1.
  const Tensor table;
};

/// Returns a factory of MusicRelative.
inline MakePositionalEncoding music_relative(MusicRelative::Options options) {
  return positional_encoding<MusicRelative>(options);
}

/// Options of ShawRelative.
struct ShawRelativeOptions {
  int64_t max_distance = 16;     ///< k, not negative (paper: 16; its big model: 8).
  bool values = true;            ///< Adds a table to the values too.
  bool shared_by_heads = false;  ///< One table for all heads (paper: no; its big model: yes).
};

/// Relative position representations (Shaw et al. 2018, §3.2, eqs. 3 and 4): row clip(r, −k, k) + k
/// of `keys` is added to the key at relative position r, the same row of `values` to its value.
/// With a causal mask the rows of keys after the query are not used.
class ShawRelative : public PositionalEncoding {
 public:
  using Options = ShawRelativeOptions;  ///< Options of the constructor.
  /// Registers the tables. The paper gives no initialization: each head's [2k + 1, D] starts like a
  /// weight, xavier_uniform_ (tensor2tensor: uniform with unit scaling).
  ShawRelative(Module& parent, HeadShape shape, Options options);
  void apply(AttentionInputs& inputs) const override;
  /// Returns the traits of an encoding with these options.
  static PositionTraits traits(const Options&) { return {.scores = true, .relative = true}; }
  std::string label() const override;

  const Options options;  ///< As passed to the constructor.
  const Tensor keys;      ///< [H, 2k + 1, D], or [1, 2k + 1, D] if shared by the heads.
  const Tensor values;    ///< The same with Dv in place of D; undefined without Options::values.
};

/// Returns a factory of ShawRelative.
inline MakePositionalEncoding shaw_relative(ShawRelative::Options options = {}) {
  return positional_encoding<ShawRelative>(options);
}

/// Options of BertRelative.
struct BertRelativeOptions {
  int64_t max_length = 0;  ///< Distances 0 … max_length − 1 have rows, in both directions.
  bool keys_too = false;   ///< Adds the key's term too ("relative_key_query").
};

/// Relative position embeddings of the BERT family in Hugging Face's Transformers, "relative_key"
/// (after Shaw et al. 2018) and, with keys_too, "relative_key_query" (Huang et al. 2020, method 4):
/// q_i · E[r] and, with keys_too, k_j · E[r] are added to the score before scaling. A relative
/// position outside of the table is an error. keys_too computes a dense bias [B, H, M, N].
class BertRelative : public PositionalEncoding {
 public:
  using Options = BertRelativeOptions;  ///< Options of the constructor.
  /// Registers `table`, normal with standard deviation 0.02.
  BertRelative(Module& parent, HeadShape shape, Options options);
  void apply(AttentionInputs& inputs) const override;
  /// Returns the traits of an encoding with these options.
  static PositionTraits traits(const Options& o) {
    return {.scores = true, .max_positions = o.max_length, .relative = true, .dense = o.keys_too};
  }
  std::string label() const override;

  const Options options;  ///< As passed to the constructor.
  /// E [1, 2·max_length − 1, D] of all heads and both terms, in ascending order of key − query;
  /// Transformers' `distance_embedding` has the reverse order.
  const Tensor table;
};

/// Returns a factory of BertRelative.
inline MakePositionalEncoding bert_relative(BertRelative::Options options) {
  return positional_encoding<BertRelative>(options);
}

/// Options of InklingRelative.
struct InklingRelativeOptions {
  int64_t dim = 16;       ///< P, the features of a head's position query; at least 1.
  int64_t extent = 1024;  ///< Distances 0 … extent − 1 have a row; at least 1.
  /// Rows for keys after the query too; without them, attention without a causal mask is an error.
  bool bidirectional = false;
  /// > 0: position queries are multiplied by learned factors and scaled down to this L2 norm if
  /// theirs is larger (Inkling 2: 8).
  double clip = 0;
  /// > 0: all scores of query i, at position p(i) in the sequence, are multiplied by 1 +
  /// log_strength · log(max((p(i) + 1) / log_floor, 1)), so that attention stays as sharp over more
  /// keys.
  int64_t log_floor = 0;
  double log_strength = 0.1;  ///< Factor of the logarithm, not negative.
};

/// Relative attention with narrow position queries (Inkling, Thinking Machines 2026): each head
/// projects p_i of P features from the layer's input and adds p_i · K[r], without scaling, to the
/// score of the key at relative position r. The table K is shared by the heads. Keys out of the
/// table's range get no term. Throws in cross-attention, because position queries are projected from
/// the input of self-attention, and with the scale 0.
class InklingRelative : public PositionalEncoding {
 public:
  using Options = InklingRelativeOptions;  ///< Options of the constructor.
  /// Registers `r`, which starts like every Linear, and `table`, normal with standard deviation
  /// 0.02. Throws if an option is out of its range.
  InklingRelative(Module& parent, HeadShape shape, Options options);
  void apply(AttentionInputs& inputs) const override;
  /// Returns the traits of an encoding with these options.
  static PositionTraits traits(const Options& o) {
    return {.scores = true, .relative = o.log_floor == 0};
  }
  std::string label() const override;

  const HeadShape shape;  ///< Sizes of the attention.
  const Options options;  ///< As passed to the constructor.
  /// Projection of the layer's input, d_model → H·P.
  Linear r{*this, "r", {shape.d_model, shape.n_heads* options.dim, false}};
  /// K [1, R, P]. R = extent, and the last row is the query's own position; bidirectional: R =
  /// 2·extent − 1. Transformers' `rel_logits_proj.proj` [P, extent] has the reverse order.
  const Tensor table;
  /// The factors of Options::clip [H, P], initially 1; undefined without it.
  const Tensor factors;
};

/// Returns a factory of InklingRelative.
inline MakePositionalEncoding inkling_relative(InklingRelative::Options options = {}) {
  return positional_encoding<InklingRelative>(options);
}

/// Adds the term of a score that depends on the key, scale · k_j · Q[r], to the dense bias of the
/// inputs; `table` is Q [H or 1, R, D]. OutOfRange::error counts as OutOfRange::zero.
void add_key_side_term(AttentionInputs& inputs, const RelativeTable& table);

}  // namespace stretto::nn
