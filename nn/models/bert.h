// BERT: a bidirectional Transformer encoder over tokens, with learned positions and token types.
//
// Reference: tests/reference/published/bert.cpp, bert()
#pragma once

#include <optional>

#include "../embedding.h"
#include "../stack.h"
#include "classifier.h"
#include "input_embedding.h"

namespace stretto::nn {

/// Options of Bert.
struct BertOptions {
  int64_t vocabulary = 0;    ///< Number of tokens.
  int64_t max_length = 512;  ///< Largest number of tokens of a sequence, at least 1.
  int64_t token_types = 2;   ///< Number of token types (segments); 0: none.
  int64_t n_layers = 12;     ///< Number of layers.
  /// Options of every layer, with NormPlace::post; its norm and dropout apply to the input too.
  LayerOptions layer = {};
  bool pooler = true;  ///< Has the layer that pooled() needs.
};

/// BERT (Devlin et al. 2019) without a head: post-norm layers over the normalized sum of the vectors
/// of tokens, positions and token types.
class Bert : public Module {
 public:
  using Options = BertOptions;  ///< Options of the constructor.

  /// Constructs a root module. Throws if a size is below 1.
  explicit Bert(Options options);
  /// Constructs a child of `parent`. Throws if a size is below 1.
  Bert(Module& parent, std::string name, Options options);

  /// Computes the vector of every token, [B, L, d_model], from tokens [B, L] with optional padding.
  /// `types` [B, L] (i64 or i32) has the token types; by default all are 0. Vectors at padded
  /// positions are meaningless. Throws if L is above max_length.
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
  Encoder encoder{
      *this, "encoder", {.n_layers = options.n_layers, .layer = options.layer}};  ///< Layers.
  std::optional<Linear> pooler;  ///< d_model → d_model, with Options::pooler.

 private:
  void make();
  static InputEmbedding::Options embedding_options(const Options& options);
};

/// Returns the options of BERT base (Devlin et al. 2019): 12 layers of width 768, 12 heads.
Bert::Options bert_base(int64_t vocabulary = 30522);

}  // namespace stretto::nn
