// The Music Transformer (Huang et al. 2018): a decoder-only Transformer over tokens whose
// attention knows relative position.
//
// Reference: tests/reference/attention.cpp, local_logits(), attention()
#pragma once

#include <optional>
#include <vector>

#include "nn/embedding.h"
#include "nn/positions/sinusoid.h"
#include "nn/transformer.h"

namespace stretto::nn {

class MusicTransformer : public Module {
 public:
  struct Options {
    int64_t vocabulary = 0;
    int64_t d_model = 256;
    int64_t n_layers = 6;
    int64_t n_heads = 8;
    int64_t d_hidden = 1024;
    int64_t d_key = 0, d_value = 0;  // of one head; 0: d_model / n_heads

    MakePosition position = {};   // of the attention; the relative table below when not given
    bool relative = true;         // relative attention, a table per layer
    int64_t relative_length = 0;  // distances with a row of their own; required when relative
    bool shared_by_heads = false;
    Beyond beyond = Beyond::zero;
    std::optional<Sinusoid> sinusoid = {};  // sinusoids added to the input: absolute positions
    int64_t learned_length = 0;             // > 0: a trained row for each of so many, added too
    MakeKernel kernel = {};                 // softmax_kernel() by default

    int64_t block = 0;  // > 0: local attention in blocks (§3.5)
    NormPlace norm = NormPlace::pre;
    double norm_eps = 1e-5;               // 1e-6 in tensor2tensor
    std::optional<bool> final_norm = {};  // after the last layer; with NormPlace::pre if not given
    Activation activation = Activation::relu;
    double dropout = 0.1;
    bool dropout_before_position = false;  // of the embedding alone, not of what is added to it
    double attention_dropout = 0;
    bool attention_bias = false;
    bool scale_embedding = true;  // by √d_model
    bool tied = false;            // the embedding is also the output projection
    bool output_bias = false;     // unless tied
    /// > 0: weights start with this standard deviation, those of norms around 1, and biases at 0;
    /// positions and kernels keep their own start.
    double init_std = 0;
  };

  explicit MusicTransformer(Options options);
  MusicTransformer(Module& parent, std::string name, Options options);

  /// Keys and values of all layers, for generation.
  struct Cache {
    std::vector<KeyValueCache> layers;
    int64_t position = 0;  // tokens seen
  };

  /// tokens [B, L] (i64 or i32) → logits [B, L, vocabulary]; row i predicts token i + 1. With a
  /// cache the tokens continue those seen before, and the result equals that of one pass over all;
  /// a call that throws leaves the cache as it was.
  Tensor operator()(const Tensor& tokens, Cache* cache = nullptr) const;

  /// Attention weights [B, H, L, L] of every layer, for pictures.
  std::vector<Tensor> attention_weights(const Tensor& tokens) const;
  /// The scores [B, H, L, L] of the first layer (MultiHeadAttention::scores), by which a position
  /// is measured: nn/positions/position_measures.h.
  Tensor attention_scores(const Tensor& tokens) const;

  std::string label() const override;

  const Options options;
  Embedding embedding{
      *this, "embedding", {options.vocabulary, options.d_model, embedding_std(options)}};
  Dropout dropout{*this, "dropout", {options.dropout}};
  List<EncoderLayer> layers{*this, "layers", options.n_layers, layer_options(options)};
  const Tensor places =  // [learned_length, d_model], where there are learned positions
      options.learned_length > 0 ? empty({options.learned_length, options.d_model}) : Tensor();
  std::optional<LayerNorm> norm;  // after the last layer, where there is one
  std::optional<Linear> out;      // unless tied

 private:
  void make();
  static double embedding_std(const Options& options);
  static LayerOptions layer_options(const Options& options);
  void start_as(double std);
  Tensor embed(const Tensor& tokens, int64_t first) const;
  Tensor attended(const EncoderLayer& layer, const Tensor& x) const;
  Visibility visible() const { return {.causal = true, .block = options.block}; }
};

/// The post-norm Performer of "Relative Positional Encoding for Transformers with Linear
/// Complexity" (Liutkus et al. 2021) on pop piano: 24 layers, d_model 512, 128 hyperbolic features.
/// It has no position yet: give it `sinusoid` (75,998,541 parameters with 333 tokens) or
/// `position`.
MusicTransformer::Options music_performer(int64_t vocabulary);

}  // namespace stretto::nn
