// Transformer layers: a mixer, by default attention, and a feed-forward network, each with a residual and a norm.
#pragma once

#include <memory>

#include "attention/attention.h"
#include "dropout.h"
#include "feed_forward.h"
#include "norm.h"

namespace stretto::nn {

/// The place of the norm in a residual branch f.
enum class NormPlace {
  pre,   ///< x = x + f(norm(x)); needs a final norm after the last layer.
  post,  ///< x = norm(x + f(x)) (Vaswani et al. 2017).
  /// x = x + norm_out(f(norm(x))) (Ding et al. 2021; Gemma 2); TransformerLayer with
  /// Residual::sequential only.
  sandwich,
  /// x = x + norm(f(x)) (Liu et al. 2022, Swin v2; OLMo 2); needs a final norm after the last
  /// layer. TransformerLayer with Residual::sequential only.
  output
};

/// The arrangement of a layer's branches. The parallel ones require NormPlace::pre and
/// have no cross-attention.
enum class Residual {
  sequential,  ///< The feed-forward network reads x plus the output of attention.
  parallel,    ///< x + attention(norm1(x)) + feed_forward(norm2(x)) (GPT-NeoX, Black et al. 2022).
  /// x + attention(norm1(x)) + feed_forward(norm1(x)) (GPT-J, Wang & Komatsuzaki 2021).
  parallel_one_norm
};

/// The place of a layer in a stack with attention over depth (LanguageModelOptions::depth_block).
enum class DepthPlace {
  none,    ///< The stack adds up its branches.
  first,   ///< The first layer, whose mixer reads the input of the stack.
  begins,  ///< Another layer that begins a block.
  inside   ///< A layer of the block that an earlier layer has begun.
};

/// Options of TransformerLayer and DecoderLayer.
struct LayerOptions {
  int64_t d_model = 0;  ///< Dimension of the layer; copied to attention and feed_forward.
  MultiHeadAttentionOptions attention = {};  ///< Options of attention; d_model may stay 0.
  MakeMixer mixer = {};  ///< Constructs another mixer in place of self-attention; by default none.
  FeedForwardOptions feed_forward = {};  ///< d_model may stay 0; dropout: by default the layer's.
  NormPlace norm = NormPlace::pre;       ///< Place of the norms.
  Residual residual = Residual::sequential;  ///< Arrangement of the branches.
  /// Multiplies the output of each branch before it is added (Granite); TransformerLayer only.
  double branch_scale = 1;
  /// > 0: the output of each branch passes through a short convolution of this many taps, with
  /// ShortConvolutionOptions::residual (Inkling). TransformerLayer with a causal mask only; without
  /// a memory and sequence parallelism.
  int64_t branch_taps = 0;
  /// Multiplies the output of the feed-forward network by a learned number, initially 1 (Inkling);
  /// TransformerLayer only.
  bool network_scale = false;
  /// Set by LanguageModel. Layers need NormPlace::pre and Residual::sequential unless it is none.
  DepthPlace depth = DepthPlace::none;
  double dropout = 0;                    ///< Dropout of the residual branches.
  NormKind norm_kind = NormKind::layer;  ///< Kind of the norms.
  std::optional<double> norm_eps = {};   ///< ε of the norms; by default default_eps(norm_kind).
  bool norm_bias = true;                 ///< Biases of the norms.
  /// False: self-attention, or the mixer, reads x itself, and norm1 is NormKind::none (the first
  /// layer of ModernBERT). TransformerLayer with NormPlace::pre and Residual::sequential only.
  bool mixer_norm = true;

  /// Returns the options of the layer's norms.
  Norm::Options norms() const { return {d_model, norm_eps, norm_kind, norm_bias}; }
};

/// Constructs the mixer of a layer, a child of `layer`.
std::unique_ptr<Mixer> make_mixer(Module& layer, const LayerOptions& options);
/// Constructs the feed-forward network of a layer, a child of `layer`.
std::unique_ptr<PositionWise> make_network(Module& layer, const LayerOptions& options);

/// The sum of a stack's input and of the branches that its layers have added so far (the "residual
/// stream"). The last branch is added by the op that computes the next norm, which then reads and
/// writes each tensor once (add_layer_norm).
class ResidualStream {
 public:
  /// A stream without branches.
  explicit ResidualStream(Tensor x) : x_(std::move(x)) {}

  /// Adds a branch, with dropout in training.
  void add(const Tensor& branch, const Dropout& dropout, const ForwardContext& forward);
  /// Returns the norm of the sum.
  Tensor normed(const Norm& norm);
  /// Returns the sum.
  Tensor value();

  /// Ends the block of layers whose branches have been added: the sum becomes a source of
  /// over_depth(), and 0.
  void begin_block();
  /// Attention over depth (Kimi Team 2026, "Attention Residuals", eq. 4): returns for each row of
  /// `queries` [Q, d] or [d] Σ_s w_s v_s [B, L, d], with w = softmax_s(query · v_s / √d) and the
  /// sources v_s = rms_norm(s): the sum of each block, and the sum. Throws without a block.
  Tensors over_depth(const Tensor& queries);

 private:
  Tensors blocks_;           // normalized sums
  Tensor x_, branch_;        // branch_: not yet in x_; may be undefined
  ResidualDropout dropout_;  // of branch_
};

/// Self-attention and feed-forward network. With AttentionMask::causal it is also the layer of
/// a decoder-only model.
class TransformerLayer : public Module {
 public:
  /// Constructs a child of `parent`. Throws if the options do not fit together.
  TransformerLayer(Module& parent, std::string name, LayerOptions options);
  /// Constructs a root module. Throws if the options do not fit together.
  explicit TransformerLayer(LayerOptions options);
  /// x [B, L, d_model] → [B, L, d_model]. With a cache, x continues the positions in it.
  Tensor operator()(const Tensor& x, const AttentionMask& mask = {}, KeyValueCache* cache = nullptr,
                    const ForwardContext& forward = {}) const;
  /// Adds the layer's branches to a stream [B, L, d_model]; for the layers of a stack. If the call
  /// throws, stream and cache are undefined: use a copy of the cache (core/all_or_nothing.h).
  void operator()(ResidualStream& x, const AttentionMask& mask, KeyValueCache* cache,
                  const ForwardContext& forward) const;
  /// Attends to a memory too, as in Transformer-XL (Dai et al. 2019, §3.2): queries come from
  /// x [B, L, d_model], keys and values from [memory; x]. The memory [B, m, d_model], earlier
  /// inputs of this layer, may be undefined. It receives no gradient, but contributes to the
  /// gradients of the norm and of the projections of keys and values. The first row of
  /// [memory; x] is at forward.first_position. Throws as MultiHeadAttention::attend().
  Tensor operator()(const Tensor& x, const Tensor& memory, const AttentionMask& mask,
                    const ForwardContext& forward = {}) const;
  /// The same for the layers of a stack.
  void operator()(ResidualStream& x, const Tensor& memory, const AttentionMask& mask,
                  const ForwardContext& forward) const;
  std::string label() const override;

  /// Returns the mixer as attention; throws if it is another.
  MultiHeadAttention& self_attention() const;
  /// Returns the feed-forward network; throws if it is another class.
  FeedForward& feed_forward() const;
  /// Returns the input of the mixer.
  Tensor mixer_input(ResidualStream& x) const;

  const LayerOptions options;  ///< As passed, with defaults filled in.
  /// A MultiHeadAttention "self_attention", or the mixer of the options.
  const std::unique_ptr<Mixer> mixer = make_mixer(*this, options);
  Norm norm1{*this, "norm1", first_norm()};  ///< Norm of the mixer's branch.
  /// A FeedForward "feed_forward", or the network of its options.
  const std::unique_ptr<PositionWise> network = make_network(*this, options);
  /// Norm of the feed-forward branch; null with Residual::parallel_one_norm.
  const std::unique_ptr<Norm> norm2 = second_norm();
  const std::unique_ptr<Norm> norm1_out = out_norm("norm1_out");  ///< With NormPlace::sandwich.
  const std::unique_ptr<Norm> norm2_out = out_norm("norm2_out");  ///< With NormPlace::sandwich.
  Dropout dropout{*this, "dropout", {options.dropout}};           ///< Dropout of the branches.
  /// Convolution of the mixer's branch, with LayerOptions::branch_taps.
  const std::unique_ptr<ShortConvolution> mixer_convolution = convolution("mixer_convolution");
  /// That of the network's branch.
  const std::unique_ptr<ShortConvolution> network_convolution = convolution("network_convolution");
  /// Norm of the keys' input, with MultiHeadAttentionOptions::separate_inputs; norm1 is that of the
  /// queries.
  const std::unique_ptr<Norm> k_norm1 = key_or_value_norm("k_norm1");
  /// Norm of the values' input.
  const std::unique_ptr<Norm> v_norm1 = key_or_value_norm("v_norm1");
  /// Query over depth of the mixer [d], or [3, d] for separate inputs, initially 0, with
  /// LayerOptions::depth; undefined in the first layer.
  const Tensor mixer_query =
      options.depth == DepthPlace::first ? Tensor() : depth_query("mixer_query", mixer_inputs());
  /// Query over depth of the network [d].
  const Tensor network_query = depth_query("network_query", 1);
  /// [1], with LayerOptions::network_scale.
  const Tensor network_scale =
      options.network_scale ? parameter("network_scale", ones({1})) : Tensor();

 private:
  // What the convolutions of the branches need.
  struct Convolved {
    AttentionMask mask;
    ConvolutionHistories* histories;  // null without a cache
  };
  // Adds both branches to the stream: `attended` is the result of attention, `input` its input.
  void add_branches(ResidualStream& x, const Tensor& input, Tensor attended,
                    const Convolved& convolved, const ForwardContext& forward) const;
  std::unique_ptr<ShortConvolution> convolution(const char* name);
  Norm::Options first_norm() const;
  std::unique_ptr<Norm> second_norm();
  std::unique_ptr<Norm> out_norm(const char* name);
  std::unique_ptr<Norm> key_or_value_norm(const char* name);
  Tensor depth_query(const char* name, int64_t rows);
  bool has_separate_inputs() const { return options.attention.separate_inputs && !options.mixer; }
  int64_t mixer_inputs() const { return has_separate_inputs() ? 3 : 1; }
};

/// The caches of a DecoderLayer.
struct DecoderCache {
  KeyValueCache self;   ///< Keys and values of self-attention.
  KeyValueCache cross;  ///< Keys and values of the context, computed once.
  /// Replaces the batch of both caches: row i becomes the former row rows[i] (i64 [n]).
  void reorder(const Tensor& rows);
};

/// Causal self-attention, cross-attention without positions, and feed-forward network.
class DecoderLayer : public Module {
 public:
  /// Constructs a child of `parent`. Throws if the options do not fit together.
  DecoderLayer(Module& parent, std::string name, LayerOptions options);
  /// Constructs a root module. Throws if the options do not fit together.
  explicit DecoderLayer(LayerOptions options);
  /// x [B, M, d_model], context [B, N, d_model] → [B, M, d_model]. With a cache, x continues the
  /// positions in it, and only the first call uses the context.
  Tensor operator()(const Tensor& x, const Tensor& context,
                    const AttentionMask& self = {.causal = true}, const AttentionMask& cross = {},
                    DecoderCache* cache = nullptr, const ForwardContext& forward = {}) const;
  /// Adds the layer's branches to a stream [B, M, d_model]; for the layers of a stack. If the call
  /// throws, stream and cache are undefined.
  void operator()(ResidualStream& x, const Tensor& context, const AttentionMask& self,
                  const AttentionMask& cross, DecoderCache* cache,
                  const ForwardContext& forward) const;
  std::string label() const override;

  /// Returns the mixer as attention; throws if it is another.
  MultiHeadAttention& self_attention() const;
  /// Returns the feed-forward network; throws if it is another class.
  FeedForward& feed_forward() const;

  const LayerOptions options;  ///< As passed, with defaults filled in.
  /// As in TransformerLayer.
  const std::unique_ptr<Mixer> mixer = make_mixer(*this, options);
  Norm norm1{*this, "norm1", options.norms()};  ///< Norm of self-attention.
  /// Cross-attention, with softmax and without positions and window.
  MultiHeadAttention cross_attention{*this, "cross_attention", plain(options.attention)};
  Norm norm2{*this, "norm2", options.norms()};  ///< Norm of cross-attention.
  /// As in TransformerLayer.
  const std::unique_ptr<PositionWise> network = make_network(*this, options);
  Norm norm3{*this, "norm3", options.norms()};           ///< Norm of the feed-forward network.
  Dropout dropout{*this, "dropout", {options.dropout}};  ///< Dropout of the branches.

 private:
  static MultiHeadAttention::Options plain(MultiHeadAttention::Options options);
};

}  // namespace stretto::nn
