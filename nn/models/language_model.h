// Decoder-only Transformers over tokens of text or music: layers of causal self-attention with any
// positional encoding and any attention kernel (softmax or linear attention). The Music
// Transformer, the Performer and LLaMA are configurations of it.
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

#include <functional>
#include <optional>
#include <vector>

#include "../transformer.h"
#include "input_embedding.h"

namespace stretto::nn {

/// Options of LanguageModel.
struct LanguageModelOptions {
  int64_t vocabulary = 0;   ///< Number of tokens.
  int64_t n_layers = 6;     ///< Number of layers.
  LayerOptions layer = {};  ///< Options of every layer; its dropout applies to the input too.
  /// Changes the options of layer i, for models whose layers differ, for example in the window of
  /// attention. By default all layers are equal.
  std::function<void(int64_t i, LayerOptions&)> vary_layer = {};
  InputOptions input = {};  ///< Options of the token vectors and absolute positions.

  int64_t block = 0;  ///< > 0: local attention in blocks (AttentionMask::block).
  /// Whether there is a norm after the last layer; by default unless that has NormPlace::post.
  std::optional<bool> final_norm = {};
  bool tied = false;         ///< Uses the embedding as the output projection.
  bool output_bias = false;  ///< Bias of the output projection, unless tied.
  double soft_cap = 0;       ///< > 0: logits x become c · tanh(x / c) (Gemma 2).
  /// > 0: weights start as normally distributed numbers with this standard deviation, with mean 1
  /// for norms and mean 0 otherwise; biases start at 0. Positional encodings of the attention and
  /// kernels keep their own initialization; the table of learned absolute positions and the sinks
  /// do not.
  double init_std = 0;
};

/// A decoder-only Transformer: embedding, layers of causal self-attention, norm, output projection.
class LanguageModel : public Module {
 public:
  using Options = LanguageModelOptions;  ///< Options of the constructor.

  /// Constructs a root module. Throws if a size is below 1.
  explicit LanguageModel(Options options);
  /// Constructs a child of `parent`. Throws if a size is below 1.
  LanguageModel(Module& parent, std::string name, Options options);

  /// The KV caches of all layers, for generation.
  struct Cache {
    std::vector<KeyValueCache> layers;  ///< One per layer; empty at the start.
    int64_t position = 0;               ///< Number of tokens seen, padding included.
    /// Left padding, for prompts of unequal length (pad_left()): the number of tokens at the start
    /// of each sequence that are ignored; empty: none. Set before the first call.
    std::vector<int64_t> padding = {};
    /// Computes logits for the last token of each call only, [B, 1, vocabulary]: a long prompt then
    /// needs neither time nor memory for the others.
    bool last_logits_only = false;
    /// Replaces the batch: row i becomes the former row rows[i]. rows [n] (i64) may omit and repeat
    /// rows. Columns that are then padding in all rows are dropped.
    void reorder(const Tensor& rows);
  };

  /// Computes logits [B, L, vocabulary] from tokens [B, L] (i64 or i32); row i
  /// predicts token i + 1.
  ///
  /// With a cache, the tokens continue those seen before, and the result equals that of one call
  /// with all tokens. A call that throws leaves the cache unchanged. Throws if another model, a
  /// clone too, has filled the cache. With Cache::padding, the logits of each sequence equal those
  /// without its padding, and the logits of the padding are undefined. With `sequence_group`, the
  /// tokens are those of this process under sequence parallelism (ForwardContext); a cache is then
  /// not supported.
  Tensor operator()(const Tensor& tokens, Cache* cache = nullptr,
                    ProcessGroup* sequence_group = nullptr) const;
  /// Computes logits with a ForwardContext of your own: ForwardContext::segments for packed
  /// documents, or ForwardContext::prefix_lengths for a prefix-LM. A cache sets first_position and
  /// padding.
  Tensor operator()(const Tensor& tokens, const ForwardContext& forward,
                    Cache* cache = nullptr) const;
  /// Computes the output of the last layer and its norm, [B, L, d_model]: logits() of it is the
  /// result of the call above. For losses that need the logits of a part of the positions.
  Tensor hidden(const Tensor& tokens, Cache* cache = nullptr,
                ProcessGroup* sequence_group = nullptr) const;
  /// The same with a ForwardContext of your own.
  Tensor hidden(const Tensor& tokens, const ForwardContext& forward, Cache* cache = nullptr) const;
  /// Computes logits [.., vocabulary] from rows of hidden() [.., d_model].
  Tensor logits(const Tensor& hidden) const;
  /// Returns an empty cache that holds the last `limit` positions of every layer; 0: all. With
  /// `kept`, the first `kept` of the limit are the first positions of the text (StreamingLLM, see
  /// KeyValueCache::kept). A default-constructed Cache has the same effect as make_cache(0).
  Cache make_cache(int64_t limit = 0, int64_t kept = 0) const;

  /// Returns the attention weights [B, H, L, L] of every layer, for visualization.
  std::vector<Tensor> attention_weights(const Tensor& tokens) const;
  /// Returns the scores [B, H, L, L] of the first layer (MultiHeadAttention::scores), for example
  /// to measure a positional encoding (examples/piano/position_measures.h).
  Tensor attention_scores(const Tensor& tokens) const;

  std::string label() const override;

  const Options options;  ///< As passed to the constructor.
  /// Token vectors and absolute positions.
  InputEmbedding embedding{*this, "embedding", input_options(options)};
  /// The layers.
  List<TransformerLayer> layers{*this, "layers", options.n_layers,
                                [this](int64_t i) { return options_of_layer(i); }};
  std::optional<Norm> norm;   ///< Norm after the last layer, with Options::final_norm.
  std::optional<Linear> out;  ///< Output projection, unless tied.

 private:
  void make();
  static InputEmbedding::Options input_options(const Options& options);
  LayerOptions options_of_layer(int64_t i) const;
  void init_normal(double std);
  AttentionMask visible() const { return {.causal = true, .block = options.block}; }
};

/// Returns the options of the Music Transformer (Huang et al. 2018): pre-norm layers of
/// width 256 without biases in the attention, with relative positions of distances 0 …
/// length − 1 (music_relative).
LanguageModel::Options music_transformer(int64_t vocabulary, int64_t length);

/// Returns the options of the post-norm Performer of "Relative Positional Encoding for Transformers
/// with Linear Complexity" (Liutkus et al. 2021) on pop piano: 24 layers, d_model 512, 128
/// hyperbolic features. It has no positional encoding: set `input.sinusoid` (75,998,541 parameters
/// with 333 tokens) or `layer.attention.position`.
LanguageModel::Options music_performer(int64_t vocabulary);

/// Returns the options of LLaMA 7B (Touvron et al. 2023a): RMSNorm before each branch, SwiGLU,
/// RoPE, no biases. Set `n_layers` and `layer` for other sizes, and layer.attention.n_kv_heads for
/// grouped-query attention (Touvron et al. 2023b).
LanguageModel::Options llama(int64_t vocabulary = 32000);

}  // namespace stretto::nn
