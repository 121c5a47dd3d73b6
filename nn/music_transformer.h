// The Music Transformer (Huang et al. 2018): a decoder-only Transformer over tokens whose
// attention knows relative position.
#pragma once

#include <optional>
#include <vector>

#include "nn/embedding.h"
#include "nn/sinusoid.h"
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

    bool relative = true;         // relative attention, a table per layer
    int64_t relative_length = 0;  // distances with a row of their own; required when relative
    bool shared_by_heads = false;
    Beyond beyond = Beyond::zero;
    std::optional<Sinusoid> sinusoid = {};  // sinusoids added to the input: absolute positions

    int64_t block = 0;  // > 0: local attention in blocks (§3.5)
    NormPlace norm = NormPlace::pre;
    double norm_eps = 1e-5;               // 1e-6 in tensor2tensor
    std::optional<bool> final_norm = {};  // after the last layer; with NormPlace::pre if not given
    Activation activation = Activation::relu;
    double dropout = 0.1;
    double attention_dropout = 0;
    bool attention_bias = false;
    bool scale_embedding = true;  // by √d_model
    bool tied = false;            // the embedding is also the output projection
    bool output_bias = false;     // unless tied
  };

  explicit MusicTransformer(Options options);
  MusicTransformer(Module& parent, std::string name, Options options);

  /// Keys and values of all layers, for generation.
  struct Cache {
    std::vector<KeyValueCache> layers;
    int64_t position = 0;  // tokens seen
  };

  /// tokens [B, L] (i64 or i32) → logits [B, L, vocabulary]; row i predicts token i + 1. With a
  /// cache the tokens continue those seen before, and the result equals that of one pass over all.
  Tensor operator()(const Tensor& tokens, Cache* cache = nullptr) const;

  /// Attention weights [B, H, L, L] of every layer, for pictures.
  std::vector<Tensor> attention_weights(const Tensor& tokens) const;

  std::string label() const override;

  const Options options;
  Embedding embedding{
      *this, "embedding", {options.vocabulary, options.d_model, embedding_std(options)}};
  Dropout dropout{*this, "dropout", {options.dropout}};
  List<EncoderLayer> layers{*this, "layers", options.n_layers, layer_options(options)};
  std::optional<LayerNorm> norm;  // after the last layer, where there is one
  std::optional<Linear> out;      // unless tied

 private:
  void make();
  static double embedding_std(const Options& options);
  static LayerOptions layer_options(const Options& options);
  Tensor embed(const Tensor& tokens, int64_t first) const;
  Visibility visible() const { return {.causal = true, .block = options.block}; }
};

}  // namespace stretto::nn
