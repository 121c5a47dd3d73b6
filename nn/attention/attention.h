// Multi-head attention. Its positional encoding and its kernel are chosen independently.
//
// Reference: tests/reference/attention.cpp, attention()
#pragma once

#include "../../core/formulas/attention_mask.h"
#include "../../ops/create.h"
#include "../linear.h"
#include "../norm.h"
#include "../positions/positional_encoding.h"
#include "mixer.h"
#include "short_convolution.h"

namespace stretto::nn {

/// What an attention kernel supports.
struct KernelTraits {
  /// A state of fixed size summarizes the past in place of keys, values and scores. With a cache,
  /// the inputs then have only the new positions, and AttentionInputs::state.
  bool recurrent = false;
  /// Of a recurrent kernel: the output depends on q and k only by their products, so that RoPE,
  /// which is relative in the products, is relative in the output.
  bool keeps_rotary_relative = false;
  /// The output depends on the order of the keys, as with a decay: a model needs no other position.
  bool ordered = false;
  /// Accepts more heads of values than of queries: MultiHeadAttentionOptions::n_value_heads.
  bool value_heads = false;
  bool memory = true;              ///< Works with a memory (LanguageModel::make_memory).
  bool segments = true;            ///< Supports packed sequences (ForwardContext::segments).
  bool sequence_parallel = false;  ///< Accepts a ForwardContext with a sequence_group.
};

/// Base class of attention kernels, which compute the output from queries, keys and values.
class AttentionKernel : public Module {
 public:
  /// Returns the traits of a kernel that is constructed with these arguments. A kernel with
  /// other traits declares its own `static KernelTraits traits(const Options&)`, which is then used.
  template <class... Arguments>
  static KernelTraits traits(const Arguments&...) {
    return {};
  }
  /// Registers the kernel in `parent`, an attention, under the name "kernel".
  explicit AttentionKernel(Module& parent) : Module(parent, "kernel") {}
  /// Returns the attention output [B, H, M, Dv].
  virtual Tensor operator()(const AttentionInputs& inputs) const = 0;
  /// Returns the weights of the values [B, H, M, N]. Throws unless overridden.
  virtual Tensor weights(const AttentionInputs& inputs) const;
};

/// Returns the name of a term of the scores, dropout or soft cap in the options, for kernels
/// without scores; null if there is none. The scale and the mask do not count.
const char* score_term(const AttentionOptions& options);

/// A factory of kernels, as MultiHeadAttentionOptions::kernel accepts it.
using MakeKernel = AttentionPart<AttentionKernel, KernelTraits>;

/// Returns a factory that constructs K(parent, shape, arguments…), with K::traits(arguments…), for
/// your own kernel: `.kernel = nn::kernel<MyKernel>(arguments…)`. shape.d_key is the dimension after
/// the positional encoding.
template <class K, class... Arguments>
MakeKernel kernel(Arguments... arguments) {
  return attention_part<K, MakeKernel>(std::move(arguments)...);
}

/// The kernel of softmax attention, softmax(scores) v (ops/attention/attention.h).
class SoftmaxKernel : public AttentionKernel {
 public:
  /// Registers the kernel in `parent`.
  SoftmaxKernel(Module& parent, HeadShape, Implementation implementation_)
      : AttentionKernel(parent), implementation(implementation_) {}
  /// Returns the traits of the softmax.
  static KernelTraits traits(Implementation) { return {.sequence_parallel = true}; }
  Tensor operator()(const AttentionInputs& inputs) const override;
  Tensor weights(const AttentionInputs& inputs) const override;
  std::string label() const override { return "SoftmaxKernel"; }

  const Implementation implementation;  ///< Implementation of attention().
};

/// Returns a factory of SoftmaxKernel.
MakeKernel softmax_kernel(Implementation implementation = Implementation::automatic);

/// A gate: the output of attention is multiplied by the sigmoid of a projection of the layer's
/// input, before the output projection (Qiu et al. 2025, "Gated Attention"; Qwen3-Next).
enum class AttentionGate {
  none,         ///< No gate.
  per_head,     ///< One factor per head.
  per_element,  ///< One factor per element, H·Dv.
};

/// Options of MultiHeadAttention.
struct MultiHeadAttentionOptions {
  int64_t d_model = 0;     ///< Dimension of inputs and outputs, at least 1.
  int64_t n_heads = 1;     ///< H, the number of query heads.
  int64_t n_kv_heads = 0;  ///< G, the number of key and value heads, a divisor of H; 0: H.
  /// The number of value heads; 0: G. With gated_linear_kernel() it may be a multiple of H, which is
  /// then the number of heads of the output (Qwen3-Next).
  int64_t n_value_heads = 0;
  int64_t d_key = 0;    ///< D, the dimension of queries and keys per head; 0: d_model / n_heads.
  int64_t d_value = 0;  ///< Dv, the dimension of values per head; 0: d_model / n_heads.
  bool bias = true;     ///< Bias of all projections, unless set individually.
  std::optional<bool> q_bias = {};    ///< Bias of the query projection; by default `bias`.
  std::optional<bool> k_bias = {};    ///< Bias of the key projection; by default `bias`.
  std::optional<bool> v_bias = {};    ///< Bias of the value projection; by default `bias`.
  std::optional<bool> out_bias = {};  ///< Bias of the output projection; by default `bias`.
  /// Norms of queries and keys, applied before the positional encoding. With dim 0 or d_key each
  /// head is normalized by itself (Qwen3), with dim H·D all heads of a position together (OLMo 2);
  /// the norm of the keys then has G·D features. By default none.
  std::optional<Norm::Options> qk_norm = {};
  /// > 0: queries, multiplied by learned factors, and keys are scaled down to this L2 norm if theirs
  /// is larger (clip_norm), at the place of qk_norm and without it (Inkling 2).
  double qk_clip = 0;
  /// ε of a norm of each head's values, v / √(mean(v²) + ε), without weights (Inkling 2); by default
  /// none.
  std::optional<double> v_norm_eps = {};
  /// Queries, keys and values have inputs of their own: the input is [B, M, 3·d_model], the three
  /// side by side. Gate, sinks and position queries read that of the queries. Self-attention only.
  bool separate_inputs = false;
  /// > 0: the projections of keys and values pass through short convolutions of this many taps,
  /// with ShortConvolutionOptions::residual, before qk_norm (Inkling). For self-attention with a
  /// causal mask and a softmax; without a memory and sequence parallelism.
  int64_t taps = 0;
  bool scaled_taps = false;  ///< With `taps`: ShortConvolutionOptions::scaled.
  /// With `taps`: filters also depend on the input, by key or value head
  /// (ShortConvolutionOptions::groups).
  bool dynamic_taps = false;
  /// > 0: sliding window (Mistral). Every mask must be causal, unless window_after is set, and no
  /// query attends to a key `window` or more positions before it. A smaller AttentionMask::window
  /// takes precedence.
  int64_t window = 0;
  /// > 0: no query attends to a key this many or more positions after it, and masks need not be
  /// causal: a bidirectional window sets both (ModernBERT).
  int64_t window_after = 0;
  double soft_cap = 0;       ///< > 0: AttentionOptions::soft_cap (Gemma 2).
  bool sinks = false;        ///< A learned sink per head (gpt-oss), initially 0.
  bool query_sinks = false;  ///< A sink per query and head, projected from the input (Inkling 2).
  AttentionGate gate = AttentionGate::none;  ///< Gate of the output; self-attention only.
  double dropout = 0;                        ///< Dropout of the attention weights, in training.
  std::optional<double> scale = {};      ///< Scale of the scores; by default 1/√d_key (T5: 1).
  MakePositionalEncoding position = {};  ///< Positional encoding; by default none.
  MakeKernel kernel = {};                ///< Attention kernel; by default softmax_kernel().
};

/// Multi-head attention (Vaswani et al. 2017, §3.2.2): projects to q, k and v in heads, adds the
/// positional encoding, applies the kernel, and projects the joined heads.
class MultiHeadAttention : public Mixer {
 public:
  using Options = MultiHeadAttentionOptions;  ///< Options of the constructor.
  /// Constructs a root module. Throws if the sizes, or positional encoding and kernel, do not fit
  /// together.
  explicit MultiHeadAttention(Options options);
  /// Constructs a child of `parent`. Throws likewise.
  MultiHeadAttention(Module& parent, std::string name, Options options);

  MixerTraits traits() const override;
  /// Self-attention: x [B, M, d_model] → [B, M, d_model]. With a cache, x continues the positions
  /// in it, and masks with a column per key have one for each cached and each new position. Throws
  /// if another attention has filled the cache.
  ///
  /// With ForwardContext::left_padding each sequence has the result that it has without its
  /// padding; outputs of the padding are undefined. mask.key_padding must then be undefined.
  Tensor operator()(const Tensor& x, const AttentionMask& mask = {}, KeyValueCache* cache = nullptr,
                    const ForwardContext& forward = {}) const override;
  /// Cross-attention from x [B, M, d_model] to context [B, N, d_model] → [B, M, d_model]. For masks
  /// and positions, the queries are the last M of the N positions. With a cache, the first call
  /// stores the keys and values of the context, and later calls ignore `context`.
  Tensor operator()(const Tensor& x, const Tensor& context, const AttentionMask& mask,
                    KeyValueCache* cache = nullptr, const ForwardContext& forward = {}) const;
  /// Returns an empty cache for this layer that holds the last `limit` positions; 0: all. With
  /// `kept`, these are the first `kept` positions and the last of the others. See
  /// KeyValueCache::limit and kept. Throws for a limit with a kernel that has a recurrent state,
  /// and for `kept` with positions that are not relative or without a larger limit.
  KeyValueCache make_cache(int64_t limit = 0, int64_t kept = 0) const override;
  /// The first of two steps of attention, for models that modify the inputs before the second step:
  /// projects x [B, M, d_model] and context [B, N, d_model] to q, k and v in heads. For
  /// self-attention x are the last rows of the context, which AttentionInputs::x then has. first_position is that of `forward`; set
  /// AttentionInputs::first_position to change it.
  /// SoftmaxKernel ignores the inputs' options.implementation and uses its own: choose it by
  /// Options::kernel = softmax_kernel(Implementation::composed).
  AttentionInputs project(const Tensor& x, const Tensor& context, const AttentionMask& mask,
                          const ForwardContext& forward = {}) const;
  /// The second step: applies positional encoding, kernel and output projection →
  /// [B, M, d_model]. Throws for ForwardContext::left_padding and prefix_lengths, which only
  /// operator() adds to the mask.
  Tensor attend(AttentionInputs inputs) const;
  /// Returns the weights of self-attention [B, H, M, M], for visualization.
  Tensor weights(const Tensor& x, const AttentionMask& mask = {}) const;
  /// Returns the masked scores of softmax attention [B, H, M, M], −∞ for keys that the mask
  /// hides (attention_scores()). Kernels that approximate the softmax, such as Performers,
  /// approximate these scores.
  Tensor scores(const Tensor& x, const AttentionMask& mask = {}) const;
  std::string label() const override;

  /// As passed to the constructor, with defaults filled in. Without a position, position.traits are
  /// those of NoPosition.
  const Options options;
  /// Query projection, d_model → H·D.
  Linear q{*this, "q", projection(options.n_heads* options.d_key, options.q_bias)};
  /// Key projection, d_model → G·D.
  Linear k{*this, "k", projection(options.n_kv_heads* options.d_key, options.k_bias)};
  /// Value projection, d_model → n_value_heads·Dv.
  Linear v{*this, "v", projection(options.n_value_heads* options.d_value, options.v_bias)};
  /// Output projection, H·Dv → d_model; with more value heads n_value_heads·Dv → d_model.
  Linear out{*this,
             "out",
             {shape().n_output_heads() * options.d_value, options.d_model,
              options.out_bias.value_or(options.bias)}};
  /// Scores of the sinks [H], AttentionOptions::sinks, with Options::sinks.
  const Tensor sinks = options.sinks ? parameter("sinks", zeros({options.n_heads})) : Tensor();
  /// Factors of the queries [H, D], initially 1, with Options::qk_clip.
  const Tensor q_factors = options.qk_clip > 0
                               ? parameter("q_factors", ones({options.n_heads, options.d_key}))
                               : Tensor();
  std::optional<Linear> query_sinks;              ///< d_model → H, with Options::query_sinks.
  std::optional<Norm> q_norm;                     ///< Norm of the queries, with Options::qk_norm.
  std::optional<Norm> k_norm;                     ///< Norm of the keys, with Options::qk_norm.
  std::optional<ShortConvolution> k_convolution;  ///< Of the keys, with Options::taps.
  std::optional<ShortConvolution> v_convolution;  ///< Of the values, with Options::taps.
  std::optional<Linear> gate;  ///< Projection of the gate, d_model → H or H·Dv, with Options::gate.

 private:
  static Options completed(Options options);
  Linear::Options projection(int64_t width, std::optional<bool> bias) const {
    return {options.d_model, width, bias.value_or(options.bias)};
  }
  void make();
  Tensors inputs_of(const Tensor& x, const Tensor& context) const;
  Tensors projections(const Tensors& in) const;
  AttentionInputs project(const Tensor& x, const Tensor& context, const AttentionMask& mask,
                          const ForwardContext& forward, KeyValueCache* cache) const;
  AttentionMask with_window(AttentionMask mask) const;
  void hide_other_segments(AttentionInputs& inputs) const;
  void show_prefix(AttentionInputs& inputs, KeyValueCache* cache) const;
  HeadShape shape() const {
    return {options.n_heads, options.d_key,      options.d_value,
            options.d_model, options.n_kv_heads, options.n_value_heads};
  }
  void check_limit(const KeyValueCache& cache) const;
  void continue_from(AttentionInputs& inputs, KeyValueCache& cache, bool only_new_keys) const;
  void apply_position(AttentionInputs& inputs) const;
  bool encodes_one_by_one(const AttentionInputs& inputs) const;
  Tensor attend_heads(AttentionInputs inputs, bool encoded, int64_t limit) const;
  Tensor gated(const Tensor& y, const AttentionInputs& inputs) const;
  void append_to_cache(AttentionInputs& inputs, KeyValueCache& cache) const;

  std::unique_ptr<PositionalEncoding> position_;
  std::unique_ptr<AttentionKernel> kernel_;
};

}  // namespace stretto::nn
