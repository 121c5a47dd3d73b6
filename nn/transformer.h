// Transformer layers: attention and a feed-forward network, each with a residual and a norm.
#pragma once

#include "nn/attention.h"
#include "nn/dropout.h"
#include "nn/feed_forward.h"
#include "nn/norm.h"

namespace stretto::nn {

/// Where the layer norm stands: post: x = norm(x + f(x)) (Vaswani et al. 2017); pre:
/// x = x + f(norm(x)), which needs one more norm after the last layer.
enum class NormPlace { pre, post };

struct LayerOptions {
  int64_t d_model = 0;
  int64_t n_heads = 1;
  int64_t d_hidden = 0;  // of the feed-forward network
  NormPlace norm = NormPlace::pre;
  Activation activation = Activation::relu;
  double dropout = 0;            // of both residual branches and inside the feed-forward network
  double attention_dropout = 0;  // of the attention weights
  double norm_eps = 1e-5;
  bool attention_bias = true;
  int64_t n_key_heads = 0, d_key = 0, d_value = 0;  // MultiHeadAttention::Options
  MakePosition position = {};
  MakeKernel kernel = {};

  MultiHeadAttention::Options attention() const;
  FeedForward::Options feed_forward() const;
};

/// Self-attention and feed-forward. With Visibility::causal this is also the layer of a
/// decoder-only model. x [B, L, d_model] → the same.
class EncoderLayer : public Module {
 public:
  EncoderLayer(Module& parent, std::string name, LayerOptions options);
  explicit EncoderLayer(LayerOptions options);
  Tensor operator()(const Tensor& x, const Visibility& visible = {},
                    KeyValueCache* cache = nullptr) const;
  std::string label() const override;

  const LayerOptions options;
  MultiHeadAttention self_attention{*this, "self_attention", options.attention()};
  LayerNorm norm1{*this, "norm1", {options.d_model, options.norm_eps}};
  FeedForward feed_forward{*this, "feed_forward", options.feed_forward()};
  LayerNorm norm2{*this, "norm2", {options.d_model, options.norm_eps}};
  Dropout dropout{*this, "dropout", {options.dropout}};
};

/// Causal self-attention, attention to a context without position, feed-forward.
/// x [B, M, d_model], context [B, N, d_model] → [B, M, d_model].
class DecoderLayer : public Module {
 public:
  DecoderLayer(Module& parent, std::string name, LayerOptions options);
  explicit DecoderLayer(LayerOptions options);
  Tensor operator()(const Tensor& x, const Tensor& context,
                    const Visibility& self = {.causal = true}, const Visibility& cross = {},
                    KeyValueCache* cache = nullptr) const;
  std::string label() const override;

  const LayerOptions options;
  MultiHeadAttention self_attention{*this, "self_attention", options.attention()};
  LayerNorm norm1{*this, "norm1", {options.d_model, options.norm_eps}};
  MultiHeadAttention cross_attention{*this, "cross_attention", plain(options.attention())};
  LayerNorm norm2{*this, "norm2", {options.d_model, options.norm_eps}};
  FeedForward feed_forward{*this, "feed_forward", options.feed_forward()};
  LayerNorm norm3{*this, "norm3", {options.d_model, options.norm_eps}};
  Dropout dropout{*this, "dropout", {options.dropout}};

 private:
  static MultiHeadAttention::Options plain(MultiHeadAttention::Options options);
};

/// One residual branch around f, in the place of the norm that `place` says.
template <class F>
Tensor residual(const Tensor& x, NormPlace place, const LayerNorm& norm, const Dropout& dropout,
                F&& f) {
  if (place == NormPlace::pre) return x + dropout(f(norm(x)));
  return norm(x + dropout(f(x)));
}

}  // namespace stretto::nn
