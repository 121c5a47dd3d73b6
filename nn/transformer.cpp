#include "nn/transformer.h"

#include "core/all_or_nothing.h"
#include "ops/elementwise.h"

namespace stretto::nn {

MultiHeadAttention::Options LayerOptions::attention() const {
  return {.d_model = d_model,
          .n_heads = n_heads,
          .n_key_heads = n_key_heads,
          .d_key = d_key,
          .d_value = d_value,
          .bias = attention_bias,
          .dropout = attention_dropout,
          .scale = attention_scale,
          .position = position,
          .kernel = kernel};
}

FeedForward::Options LayerOptions::feed_forward() const {
  return {.d_model = d_model,
          .d_hidden = d_hidden,
          .activation = activation,
          .dropout = dropout,
          .bias = feed_forward_bias,
          .gated = gated};
}

EncoderLayer::EncoderLayer(LayerOptions o) : options(std::move(o)) {}
EncoderLayer::EncoderLayer(Module& parent, std::string name, LayerOptions o)
    : Module(parent, std::move(name)), options(std::move(o)) {}

Tensor EncoderLayer::operator()(const Tensor& x, const AttentionMask& visible,
                                KeyValueCache* cache) const {
  return all_or_nothing(cache, [&](KeyValueCache* after) {
    const Tensor y = residual(x, options.norm, norm1, dropout,
                              [&](const Tensor& t) { return self_attention(t, visible, after); });
    return residual(y, options.norm, norm2, dropout,
                    [&](const Tensor& t) { return feed_forward(t); });
  });
}

std::string EncoderLayer::label() const {
  return options.norm == NormPlace::pre ? "EncoderLayer(pre-norm)" : "EncoderLayer(post-norm)";
}

void DecoderCache::reorder(const Tensor& rows) {
  all_or_nothing(*this, [&](DecoderCache& after) {
    after.self.reorder(rows);
    after.cross.reorder(rows);
  });
}

DecoderLayer::DecoderLayer(LayerOptions o) : options(std::move(o)) {}
DecoderLayer::DecoderLayer(Module& parent, std::string name, LayerOptions o)
    : Module(parent, std::move(name)), options(std::move(o)) {}

MultiHeadAttention::Options DecoderLayer::plain(MultiHeadAttention::Options o) {
  o.position = {};
  o.kernel = {};
  return o;
}

Tensor DecoderLayer::operator()(const Tensor& x, const Tensor& context, const AttentionMask& self,
                                const AttentionMask& cross, DecoderCache* cache) const {
  return all_or_nothing(cache, [&](DecoderCache* after) {
    Tensor y = residual(x, options.norm, norm1, dropout, [&](const Tensor& t) {
      return self_attention(t, self, after ? &after->self : nullptr);
    });
    y = residual(y, options.norm, norm2, dropout, [&](const Tensor& t) {
      return cross_attention(t, context, cross, after ? &after->cross : nullptr);
    });
    return residual(y, options.norm, norm3, dropout,
                    [&](const Tensor& t) { return feed_forward(t); });
  });
}

std::string DecoderLayer::label() const {
  return options.norm == NormPlace::pre ? "DecoderLayer(pre-norm)" : "DecoderLayer(post-norm)";
}

}  // namespace stretto::nn
