// Decoder-only Transformers over tokens of text or music: layers of causal self-attention with any
// positional encoding and any attention kernel (softmax or linear attention). The Music
// Transformer, the Performer, LLaMA and Transformer-XL (transformer_xl.h) are configurations of it.
//
// Tokens that continue earlier ones are given together with a cache: keys and values for generation
// (make_cache), or, for training on the segments of a long text, a memory (make_memory):
//
//     nn::LanguageModel::Cache memory = model.make_memory();  // one per batch of streams
//     for (…) {  // segments in order; row b of a batch continues row b of the previous batch
//       const Tensor loss = mean(model.nll(tokens, targets, &memory));
//
// Reference: tests/reference/attention.cpp, local_logits(), attention()
// Reference: tests/reference/transformer_xl.cpp, xl_layer()
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

#include "../../ops/loss.h"
#include "../positions/relative_sinusoid.h"
#include "../transformer.h"
#include "input_embedding.h"

namespace stretto::nn {

/// The keys that each position attends to within a memory and its own segment.
enum class SameLength {
  off,  ///< All up to its own position.
  on,   ///< Distances 0 … length, the same number for all positions.
  /// Distances 0 … length − 1, as in the authors' PyTorch code of Transformer-XL; reproduces its
  /// published results.
  original
};

/// Options of a memory (LanguageModel::make_memory). Training and evaluation may use different
/// ones.
struct MemoryOptions {
  int64_t length = 0;  ///< Positions that the memory holds.
  /// Extended context (ext_len): the number of newest tokens that are not stored in the memory but
  /// processed again, with gradients, at the start of the next segment.
  int64_t extended = 0;
  /// > 0: larger distances have the sinusoid of this distance
  /// (LanguageModelOptions::shared_sinusoids).
  int64_t clamp = 0;
  SameLength same_length = SameLength::off;  ///< The keys that each position attends to.
  /// Starts as `length` rows of zeros, which take part in the softmax (the authors' TensorFlow
  /// code), instead of without rows (their PyTorch code).
  bool zero_start = false;
};

/// Options of LanguageModel.
struct LanguageModelOptions {
  int64_t vocabulary = 0;   ///< Number of tokens.
  int64_t n_layers = 6;     ///< Number of layers.
  LayerOptions layer = {};  ///< Options of every layer; its dropout applies to the input too.
  /// Changes the options of layer i, for models whose layers differ, for example in the window of
  /// attention. By default all layers are equal.
  std::function<void(int64_t i, LayerOptions&)> vary_layer = {};
  /// > 0: attention over depth in place of the residual sum (Kimi Team 2026, "Attention Residuals",
  /// in blocks; Inkling 2). Mixers, networks and the final norm read, each with a learned query, a
  /// weighted mean of the sum of the branches of this many layers in each block, with the last one
  /// unfinished, and of the input, all normalized (ResidualStream::over_depth). Without a memory.
  int64_t depth_block = 0;
  InputOptions input = {};  ///< Options of the token vectors and absolute positions.

  int64_t block = 0;  ///< > 0: local attention in blocks (AttentionMask::block).
  /// Whether there is a norm after the last layer; by default unless that has NormPlace::post.
  std::optional<bool> final_norm = {};
  bool tied = false;         ///< Uses the embedding as the output projection.
  bool output_bias = false;  ///< Bias of the output projection, unless tied.
  /// > 0: logits of the first n_logits tokens only. The others, which pad the vocabulary to a round
  /// size, are never predicted (Inkling). Not with `adaptive`.
  int64_t n_logits = 0;
  double logit_scale = 1;  ///< Multiplies the logits, before soft_cap (Granite).
  double soft_cap = 0;     ///< > 0: logits x become c · tanh(x / c) (Gemma 2).

  /// Adaptive input and softmax (nn/models/adaptive.h) in place of embedding and output projection,
  /// for large vocabularies; vocabulary and d_model may stay 0. `tied` applies to their tables.
  std::optional<AdaptiveOptions> adaptive = {};
  std::vector<bool> tied_projections = {};  ///< AdaptiveSoftmaxOptions::tied_projections.
  /// The positions of Transformer-XL, unless the layer or the input has others: a RelativeSinusoid
  /// in every layer, with sinusoids that are computed once per call, with the layer's dropout.
  bool shared_sinusoids = false;
  bool tied_biases = true;  ///< With shared_sinusoids: one pair of biases u and v for all layers.
  /// Applies the layer's dropout to the output of the last layer too.
  bool output_dropout = false;
  /// Options of make_memory(). Clamp and same_length apply to calls without a memory too.
  MemoryOptions memory = {};

  /// > 0: weights start as normally distributed numbers with this standard deviation, with mean 1
  /// for norms and mean 0 otherwise; biases start at 0. Positional encodings of the attention,
  /// except shared_sinusoids, kernels and mixers keep their own initialization; so do the sinks and the
  /// table of learned absolute positions with `adaptive`, but not without it.
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

  /// The tokens seen so far: the KV caches of all layers, for generation, or a memory, which
  /// training uses too. Starts empty; every successful call advances it.
  struct Cache {
    std::vector<KeyValueCache> layers;  ///< One per layer; empty at the start.
    int64_t position = 0;               ///< Number of tokens seen, padding included.
    /// Left padding, for prompts of unequal length (pad_left()): the number of tokens at the start
    /// of each sequence that are ignored; empty: none. Set before the first call.
    std::vector<int64_t> left_padding = {};
    /// Computes logits for the last token of each call only, [B, 1, vocabulary]: a long prompt then
    /// needs neither time nor memory for the others.
    bool last_logits_only = false;
    /// Set: the cache is a memory, which holds `inputs` instead of `layers`: keys and values are
    /// computed anew in each call, because training changes the weights. May change between calls.
    std::optional<MemoryOptions> memory = {};
    /// Inputs of the layers [B, m, d_model], off the tape; empty at the start. Rows of a zero_start
    /// count as tokens in `position`.
    Tensors inputs = {};
    Tensor context = {};  ///< Extended context: the newest tokens [B, e], i64; may be undefined.
    uint64_t model = 0;   ///< Module::serial() of the model that has filled a memory; 0: none.

    /// Returns the number of positions in each layer's cache or memory.
    int64_t length() const;
    /// Replaces the batch: row i becomes the former row rows[i]. rows [n] (i64) may omit and repeat
    /// rows. Columns that are then padding in all rows are dropped.
    void reorder(const Tensor& rows);
  };

  /// Computes logits [B, L, vocabulary or n_logits] from tokens [B, L] (i64 or i32); row i
  /// predicts token i + 1.
  ///
  /// With a cache, the tokens continue those seen before, and the result equals that of one call
  /// with all tokens. A call that throws leaves the cache unchanged. Throws if another model, a
  /// clone too, has filled the cache. With Cache::left_padding, the logits of each sequence equal
  /// those without its padding, and the logits of the padding are undefined. With `sequence_group`, the
  /// tokens are those of this process under sequence parallelism (ForwardContext); a cache is then
  /// not supported. With Options::adaptive the logits are logarithms of probabilities.
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
  /// Computes logits [.., vocabulary or n_logits] from rows of hidden() [.., d_model].
  Tensor logits(const Tensor& hidden) const;
  /// Computes cross_entropy of logits(hidden), whose logits are not all in memory at a time
  /// (linear_cross_entropy) without `adaptive`, `n_logits` and an adapter of the output projection.
  /// The model sets the scale and the cap of the options.
  Tensor loss(const Tensor& hidden, const Tensor& targets,
              LinearCrossEntropyOptions options = {}) const;
  /// Computes −log p(target) of each position [B, L]; targets [B, L] are the tokens shifted by one.
  /// With Options::adaptive, clusters without a target are not computed (adaptive_nll).
  Tensor nll(const Tensor& tokens, const Tensor& targets, Cache* cache = nullptr,
             ProcessGroup* sequence_group = nullptr) const;
  /// The same with a ForwardContext of your own.
  Tensor nll(const Tensor& tokens, const Tensor& targets, const ForwardContext& forward,
             Cache* cache = nullptr) const;
  /// Returns an empty cache that holds the last `limit` positions of every layer; 0: all. With
  /// `kept`, the first `kept` of the limit are the first positions of the text (StreamingLLM, see
  /// KeyValueCache::kept). A default-constructed Cache has the same effect as make_cache(0).
  Cache make_cache(int64_t limit = 0, int64_t kept = 0) const;
  /// Returns an empty memory (Dai et al. 2019): the layers attend to their inputs at the last
  /// `length` positions before the call, without gradients into them. Throws if neither `length`
  /// nor `extended` is positive. A call with a memory throws for absolute positions, padding, packed
  /// segments, a prefix-LM and sequence parallelism.
  Cache make_memory(MemoryOptions memory) const;
  /// Returns an empty memory with Options::memory.
  Cache make_memory() const { return make_memory(options.memory); }

  /// Returns the attention weights [B, H, L, L] of every layer, for visualization.
  std::vector<Tensor> attention_weights(const Tensor& tokens) const;
  /// Returns the scores [B, H, L, L] of the first layer (MultiHeadAttention::scores), for example
  /// to measure a positional encoding (examples/piano/position_measures.h).
  Tensor attention_scores(const Tensor& tokens) const;

  std::string label() const override;

  const Options options;  ///< As passed to the constructor, with the sizes of `adaptive` filled in.
  /// Token vectors and absolute positions.
  InputEmbedding embedding{*this, "embedding", input_options(options)};
  const Tensor u = shared_bias("u");  ///< Bias of content [H, D], with Options::tied_biases.
  const Tensor v = shared_bias("v");  ///< Bias of position [H, D], with Options::tied_biases.
  std::optional<Dropout> dropout;     ///< Dropout of shared sinusoids and of the output.
  /// The layers.
  List<TransformerLayer> layers{*this, "layers", options.n_layers,
                                [this](int64_t i) { return options_of_layer(i); }};
  /// Query over depth of the final norm [d_model], initially 0, with Options::depth_block.
  const Tensor output_query = options.depth_block > 0
                                  ? parameter("output_query", zeros({options.layer.d_model}))
                                  : Tensor();
  std::optional<Norm> norm;               ///< Norm after the last layer, with Options::final_norm.
  std::optional<Linear> out;              ///< Output projection, unless tied or adaptive.
  std::optional<AdaptiveSoftmax> output;  ///< Output layer, with Options::adaptive.

 private:
  void make();
  static InputEmbedding::Options input_options(const Options& options);
  bool sinusoidal() const;
  Tensor shared_bias(std::string name);
  LayerOptions options_of_layer(int64_t i) const;
  void init_normal(double std);
  AttentionMask visible(const MemoryOptions& memory) const;
  Tensor sinusoid_rows(int64_t n_keys, const MemoryOptions& memory,
                       const ForwardContext& forward) const;
  void check_memory(const Tensor& tokens, const Cache& memory, const ForwardContext& forward) const;
  Tensor begin_with_memory(const Tensor& tokens, Cache& memory, ForwardContext& forward) const;

  DistanceSinusoids sinusoids_;
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
