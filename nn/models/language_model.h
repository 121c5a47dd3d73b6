// Decoder-only Transformers over tokens, of text or of music: layers of self-attention that look
// back. Any position and any kernel; the Music Transformer, the Performer and LLaMA are settings.
//
// Reference: tests/reference/attention.cpp, local_logits(), attention()
// Reference: tests/reference/published/llama.cpp, llama()
// Reference: tests/reference/published/mistral.cpp, mistral()
// Reference: tests/reference/published/qwen3.cpp, qwen3()
// Reference: tests/reference/published/gpt2.cpp, gpt2()
// Reference: tests/reference/published/gpt_neox.cpp, gpt_neox()
// Reference: tests/reference/published/gptj.cpp, gptj()
// Reference: tests/reference/published/bloom.cpp, bloom()
#pragma once

#include <optional>
#include <vector>

#include "../transformer.h"
#include "input_embedding.h"

namespace stretto::nn {

struct LanguageModelOptions {
  int64_t vocabulary = 0;
  int64_t n_layers = 6;
  LayerOptions layer = {};  // every layer's; its dropout is the input's too
  InputOptions input = {};

  int64_t block = 0;                    // > 0: which keys are seen (AttentionMask)
  std::optional<bool> final_norm = {};  // after the last layer; with NormPlace::pre if not given
  bool tied = false;                    // the embedding is also the output projection
  bool output_bias = false;             // unless tied
  /// > 0: weights start with this standard deviation, those of norms around 1, and biases at 0;
  /// positions and kernels keep their own start.
  double init_std = 0;
};

class LanguageModel : public Module {
 public:
  using Options = LanguageModelOptions;

  explicit LanguageModel(Options options);
  LanguageModel(Module& parent, std::string name, Options options);

  /// Keys and values of all layers, for generation.
  struct Cache {
    std::vector<KeyValueCache> layers;
    int64_t position = 0;  // tokens seen
  };

  /// tokens [B, L] (i64 or i32) → logits [B, L, vocabulary]; row i predicts token i + 1. With a
  /// cache the tokens continue those seen before, and the result equals that of one pass over all;
  /// a call that throws leaves the cache as it was, and a cache of a model with other sizes is an
  /// error. With `sequence_group` the tokens are this process's of longer sequences
  /// (ForwardContext), without a cache.
  Tensor operator()(const Tensor& tokens, Cache* cache = nullptr,
                    ProcessGroup* sequence_group = nullptr) const;
  /// An empty cache that keeps the last `limit` positions of every layer, or with 0 all. Only a
  /// cache with a limit has to be made; without one an empty Cache does, too.
  Cache make_cache(int64_t limit = 0) const;

  /// Attention weights [B, H, L, L] of every layer, for pictures.
  std::vector<Tensor> attention_weights(const Tensor& tokens) const;
  /// The scores [B, H, L, L] of the first layer (MultiHeadAttention::scores), by which a position
  /// is measured: examples/piano/position_measures.h.
  Tensor attention_scores(const Tensor& tokens) const;

  std::string label() const override;

  const Options options;
  InputEmbedding embedding{*this, "embedding", input_options(options)};
  List<TransformerLayer> layers{*this, "layers", options.n_layers, options.layer};
  std::optional<Norm> norm;   // after the last layer, where there is one
  std::optional<Linear> out;  // unless tied

 private:
  void make();
  static InputEmbedding::Options input_options(const Options& options);
  void init_normal(double std);
  Tensor attended(const TransformerLayer& layer, const Tensor& x) const;
  AttentionMask visible() const { return {.causal = true, .block = options.block}; }
};

/// The Music Transformer (Huang et al. 2018): pre-norm layers of width 256 without biases in the
/// attention, whose relative positions have a row for each of `length` distances (music_relative).
LanguageModel::Options music_transformer(int64_t vocabulary, int64_t length);

/// The post-norm Performer of "Relative Positional Encoding for Transformers with Linear
/// Complexity" (Liutkus et al. 2021) on pop piano: 24 layers, d_model 512, 128 hyperbolic features.
/// It has no position yet: give it `input.sinusoid` (75,998,541 parameters with 333 tokens) or
/// `layer.attention.position`.
LanguageModel::Options music_performer(int64_t vocabulary);

/// LLaMA (Touvron et al. 2023a; 2023b with fewer key heads, as layer.attention.n_kv_heads):
/// RMSNorm before each branch, SwiGLU, RoPE, no biases. The sizes are those of the 7B model; set
/// `n_layers` and `layer` for others.
LanguageModel::Options llama(int64_t vocabulary = 32000);

}  // namespace stretto::nn
