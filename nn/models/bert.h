// BERT: a bidirectional Transformer encoder over tokens, with learned positions and token types.
// DeBERTa v2 and v3 are the same encoder with disentangled attention.
//
// Reference: tests/reference/published/bert.cpp, bert()
// Reference: tests/reference/published/deberta.cpp, deberta_v2()
#pragma once

#include <optional>

#include "../embedding.h"
#include "../positions/disentangled.h"
#include "../stack.h"
#include "classifier.h"
#include "input_embedding.h"

namespace stretto::nn {

/// Options of Bert.
struct BertOptions {
  int64_t vocabulary = 0;    ///< Number of tokens.
  int64_t max_length = 512;  ///< Largest number of tokens with learned positions, at least 1.
  int64_t token_types = 2;   ///< Number of token types (segments); 0: none.
  int64_t n_layers = 12;     ///< Number of layers.
  /// Options of every layer, with NormPlace::post; its norm and dropout apply to the input too.
  LayerOptions layer = {};
  bool pooler = true;             ///< Has the layer that pooled() needs.
  bool learned_positions = true;  ///< Adds a learned vector of each position to the input.
  /// Disentangled attention in all layers, which share one table; `rows` and layer.attention.position
  /// must not be set (DeBERTa).
  std::optional<Disentangled::Options> disentangled = {};
  bool relative_norm = false;  ///< Normalizes the table of `disentangled` as the layers do.
};

/// BERT (Devlin et al. 2019) without a head: post-norm layers over the normalized sum of the vectors
/// of tokens, positions and token types. With Options::disentangled it is DeBERTa v2 and v3 (He et
/// al. 2021a, 2021b), without the convolution of the largest models of v2.
class Bert : public Module {
 public:
  using Options = BertOptions;  ///< Options of the constructor.

  /// Constructs a root module. Throws if a size is below 1 or the options do not fit together.
  explicit Bert(Options options);
  /// Constructs a child of `parent`. Throws if a size is below 1 or the options do not fit together.
  Bert(Module& parent, std::string name, Options options);

  /// Computes the vector of every token, [B, L, d_model], from tokens [B, L] with optional padding.
  /// `types` [B, L] (i64 or i32) has the token types; by default all are 0. Vectors at padded
  /// positions are meaningless. With learned positions, throws if L is above max_length.
  Tensor operator()(const TokenBatch& x, const Tensor& types = {}) const;
  /// Returns the vector of each sequence, [B, d_model], from the output of operator(): a linear
  /// layer and tanh of the first token's vector. Throws without Options::pooler.
  Tensor pooled(const Tensor& output) const;
  std::string label() const override;

  const Options options;  ///< As passed to the constructor.
  /// Vectors of tokens and positions, and the norm of the sum.
  InputEmbedding embedding{*this, "embedding", embedding_options(options)};
  std::optional<Embedding>
      token_types;  ///< Vectors of token types, unless Options::token_types is 0.
  /// Table of relative positions [2k, d_model] of all layers, with Options::disentangled.
  const Tensor relative = relative_table();
  std::optional<Norm> relative_norm;  ///< Norm of the table, with Options::relative_norm.
  /// Layers.
  Encoder encoder{*this, "encoder", {.n_layers = options.n_layers, .layer = layer_options()}};
  std::optional<Linear> pooler;  ///< d_model → d_model, with Options::pooler.

 private:
  void make();
  Tensor relative_table();
  LayerOptions layer_options() const;
  static InputEmbedding::Options embedding_options(const Options& options);
};

/// Returns the options of BERT base (Devlin et al. 2019): 12 layers of width 768, 12 heads.
Bert::Options bert_base(int64_t vocabulary = 30522);

/// Returns the options of DeBERTa v3 base (He et al. 2021b): BERT base with disentangled attention
/// in 256 buckets, a normalized table and projections shared with the content; without learned
/// positions, token types and pooler.
Bert::Options deberta_v3_base(int64_t vocabulary = 128'100);

}  // namespace stretto::nn
