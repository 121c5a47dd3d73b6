// Transformer layers: attention and a feed-forward network, each with a residual and a norm.
#pragma once

#include "attention/attention.h"
#include "dropout.h"
#include "feed_forward.h"
#include "norm.h"

namespace stretto::nn {

/// Where the norm stands: post: x = norm(x + f(x)) (Vaswani et al. 2017); pre:
/// x = x + f(norm(x)), which needs one more norm after the last layer.
enum class NormPlace { pre, post };

/// How the branches of a layer meet.
/// sequential: the feed-forward network reads x and what attention added to it;
/// parallel: x + attention(norm1(x)) + feed_forward(norm2(x)) (GPT-NeoX, Black et al. 2022);
/// parallel_one_norm: the same with norm1 for both (GPT-J, Wang & Komatsuzaki 2021).
/// The parallel ones go with NormPlace::pre and without attention to a context.
enum class Residual { sequential, parallel, parallel_one_norm };

struct LayerOptions {
  int64_t d_model = 0;                       ///< The d_model of the parts too, which leave it 0.
  MultiHeadAttentionOptions attention = {};  ///< Of all attentions of the layer.
  FeedForwardOptions feed_forward = {};      ///< Its dropout is the layer's, if not given.
  NormPlace norm = NormPlace::pre;
  Residual residual = Residual::sequential;
  double dropout = 0;  ///< Of the residual branches.
  NormKind norm_kind = NormKind::layer;
  std::optional<double> norm_eps = {};  ///< default_eps(norm_kind), if not given.
  bool norm_bias = true;

  Norm::Options norms() const { return {d_model, norm_eps, norm_kind, norm_bias}; }
};

/// Self-attention and feed-forward. With AttentionMask::causal this is also the layer of a
/// decoder-only model. x [B, L, d_model] → the same.
class TransformerLayer : public Module {
 public:
  TransformerLayer(Module& parent, std::string name, LayerOptions options);
  explicit TransformerLayer(LayerOptions options);
  Tensor operator()(const Tensor& x, const AttentionMask& visible = {},
                    KeyValueCache* cache = nullptr, const ForwardContext& forward = {}) const;
  std::string label() const override;

  const LayerOptions options;
  MultiHeadAttention self_attention{*this, "self_attention", options.attention};
  Norm norm1{*this, "norm1", options.norms()};
  FeedForward feed_forward{*this, "feed_forward", options.feed_forward};
  const std::unique_ptr<Norm> norm2 = second_norm();  // null with Residual::parallel_one_norm
  Dropout dropout{*this, "dropout", {options.dropout}};

 protected:
  /// What follows attention: `y` is x with its branch, `normed` what that branch saw of x.
  Tensor feed(const Tensor& x, const Tensor& y, const Tensor& normed,
              const ForwardContext& forward) const;

 private:
  std::unique_ptr<Norm> second_norm();
};

/// What a DecoderLayer keeps of a call for the next: its own keys and values, and those of the
/// context, which are made once.
struct DecoderCache {
  KeyValueCache self, cross;
  void reorder(const Tensor& rows);
};

/// Causal self-attention, attention to a context without position, feed-forward.
/// x [B, M, d_model], context [B, N, d_model] → [B, M, d_model]. With a cache x continues the
/// positions in it, and only the first call looks at the context.
class DecoderLayer : public Module {
 public:
  DecoderLayer(Module& parent, std::string name, LayerOptions options);
  explicit DecoderLayer(LayerOptions options);
  Tensor operator()(const Tensor& x, const Tensor& context,
                    const AttentionMask& self = {.causal = true}, const AttentionMask& cross = {},
                    DecoderCache* cache = nullptr, const ForwardContext& forward = {}) const;
  std::string label() const override;

  const LayerOptions options;
  MultiHeadAttention self_attention{*this, "self_attention", options.attention};
  Norm norm1{*this, "norm1", options.norms()};
  MultiHeadAttention cross_attention{*this, "cross_attention", plain(options.attention)};
  Norm norm2{*this, "norm2", options.norms()};
  FeedForward feed_forward{*this, "feed_forward", options.feed_forward};
  Norm norm3{*this, "norm3", options.norms()};
  Dropout dropout{*this, "dropout", {options.dropout}};

 private:
  static MultiHeadAttention::Options plain(MultiHeadAttention::Options options);
};

/// One residual branch around f, in the place of the norm that `place` says.
template <class F>
Tensor residual(const Tensor& x, NormPlace place, const Norm& norm, const Dropout& dropout,
                const ForwardContext& forward, F&& f) {
  if (place == NormPlace::pre) return dropout.add(f(norm(x)), x, forward);
  return norm(dropout.add(f(x), x, forward));
}

}  // namespace stretto::nn
