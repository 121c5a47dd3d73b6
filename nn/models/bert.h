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
  /// Options of every layer, in BERT with NormPlace::post; its norm and dropout apply to the input
  /// too.
  LayerOptions layer = {};
  /// Changes the options of layer i (ModernBERT).
  std::function<void(int64_t i, LayerOptions&)> vary_layer = {};
  bool final_norm = false;        ///< Adds a norm after the last layer, as NormPlace::pre needs.
  bool pooler = true;             ///< Has the layer that pooled() needs.
  bool learned_positions = true;  ///< Adds a learned vector of each position to the input.
  int64_t first_position = 0;     ///< Learned position of the first token (RoBERTa: 2).
  /// Disentangled attention in all layers, which share one table; `rows` and
  /// layer.attention.position must not be set (DeBERTa).
  std::optional<Disentangled::Options> disentangled = {};
  bool relative_norm = false;  ///< Normalizes the table of `disentangled` as the layers do.
  /// > 0: adds a BertConvolution of this odd number of positions after the first layer (DeBERTa
  /// v2).
  int64_t kernel_size = 0;
  Activation kernel_activation = Activation::gelu;  ///< Activation of the convolution.
};

/// Options of BertConvolution.
struct BertConvolutionOptions {
  int64_t d_model = 0;                       ///< Dimension of the vectors.
  int64_t kernel_size = 3;                   ///< Number of positions of a window, odd.
  Activation activation = Activation::gelu;  ///< Activation of the convolution.
  double dropout = 0;                        ///< Dropout before the activation.
  Norm::Options norm = {};                   ///< Options of the norm; dim is ignored.
};

/// The convolution of the largest models of DeBERTa v2 (xlarge and xxlarge): adds the vectors of
/// neighboring tokens, as they enter the first layer, to the output of this layer.
class BertConvolution : public Module {
 public:
  using Options = BertConvolutionOptions;  ///< Options of the constructor.
  /// Constructs a child of `parent`. Throws if the kernel size is not odd.
  BertConvolution(Module& parent, std::string name, Options options);
  /// Returns norm(y + activation(dropout(convolution(x)))) [B, L, d_model]. x [B, L, d_model] is
  /// the input of the first layer, y its output, `padding` [B, L] as in TokenBatch; positions
  /// outside the sequence and padded positions count as 0.
  Tensor operator()(const Tensor& x, const Tensor& y, const Tensor& padding,
                    const ForwardContext& forward) const;
  std::string label() const override;

  const Options options;  ///< As passed to the constructor.
  /// The weights of all positions of a window, kernel_size · d_model → d_model.
  Linear window{*this, "window", {options.kernel_size * options.d_model, options.d_model}};
  Norm norm{*this, "norm", norm_options(options)};       ///< Norm of the sum.
  Dropout dropout{*this, "dropout", {options.dropout}};  ///< Dropout before the activation.

 private:
  static Norm::Options norm_options(const Options& options);
};

/// BERT (Devlin et al. 2019) without a head: post-norm layers over the normalized sum of the
/// vectors of tokens, positions and token types. With Options::disentangled it is DeBERTa v2 and
/// v3 (He et al. 2021a, 2021b), with Options::first_position RoBERTa (Liu et al. 2019), with
/// pre-norm layers, Options::final_norm and RoPE ModernBERT (Warner et al. 2024).
class Bert : public Module {
 public:
  using Options = BertOptions;  ///< Options of the constructor.

  /// Constructs a root module. Throws if a size is below 1 or the options do not fit together.
  explicit Bert(Options options);
  /// Constructs a child of `parent`. Throws if a size is below 1 or the options do not fit
  /// together.
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
  Encoder encoder{*this,
                  "encoder",
                  {.n_layers = options.n_layers,
                   .layer = layer_options(),
                   .vary_layer = options.vary_layer,
                   .final_norm = options.final_norm}};
  /// Convolution after the first layer, with Options::kernel_size.
  std::optional<BertConvolution> convolution;
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
