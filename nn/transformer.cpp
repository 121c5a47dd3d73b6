#include "nn/transformer.h"

#include "core/all_or_nothing.h"
#include "ops/elementwise.h"

namespace stretto::nn {

namespace {

// Fills in the options of attention and feed-forward network that the layer determines.
LayerOptions completed(const char* op, LayerOptions o, bool context = false) {
  check(o.d_model >= 1 && o.attention.n_heads >= 1 && o.feed_forward.d_hidden >= 1, op, "d_model ",
        o.d_model, ", attention.n_heads ", o.attention.n_heads, ", feed_forward.d_hidden ",
        o.feed_forward.d_hidden, "; must be at least 1");
  for (int64_t* part : {&o.attention.d_model, &o.feed_forward.d_model}) {
    check(*part == 0 || *part == o.d_model, op, "d_model of attention or feed_forward is ", *part,
          ", d_model of the layer ", o.d_model, "; must be 0 or the same");
    *part = o.d_model;
  }
  if (!o.feed_forward.dropout) o.feed_forward.dropout = o.dropout;
  check(o.norm != NormPlace::sandwich || !context, op,
        "NormPlace::sandwich is for TransformerLayer; use NormPlace::pre or post");
  if (o.residual == Residual::sequential) return o;
  check(o.norm == NormPlace::pre, op,
        "parallel branches do not support NormPlace::post and sandwich; use NormPlace::pre or "
        "Residual::sequential");
  check(!context, op,
        "parallel branches do not support cross-attention; use Residual::sequential, or "
        "TransformerLayer as LanguageModel does");
  return o;
}

}  // namespace

TransformerLayer::TransformerLayer(LayerOptions o)
    : options(completed("TransformerLayer", std::move(o))) {}
TransformerLayer::TransformerLayer(Module& parent, std::string name, LayerOptions o)
    : Module(parent, std::move(name)), options(completed("TransformerLayer", std::move(o))) {}

std::unique_ptr<Norm> TransformerLayer::second_norm() {
  if (options.residual == Residual::parallel_one_norm) return nullptr;
  return std::make_unique<Norm>(*this, "norm2", options.norms());
}

std::unique_ptr<Norm> TransformerLayer::out_norm(const char* name) {
  if (options.norm != NormPlace::sandwich) return nullptr;
  return std::make_unique<Norm>(*this, name, options.norms());
}

Tensor TransformerLayer::operator()(const Tensor& x, const AttentionMask& mask,
                                    KeyValueCache* cache, const ForwardContext& forward) const {
  return all_or_nothing(cache, [&](KeyValueCache* after) {
    const auto attend = [&](const Tensor& t) {
      const Tensor y = self_attention(t, mask, after, forward);
      return dropout.add(norm1_out ? (*norm1_out)(y) : y, x, forward);
    };
    if (options.norm == NormPlace::post) return feed(x, norm1(attend(x)), x, forward);
    const Tensor normed = norm1(x);
    return feed(x, attend(normed), normed, forward);
  });
}

Tensor TransformerLayer::feed(const Tensor& x, const Tensor& y, const Tensor& normed,
                              const ForwardContext& forward) const {
  if (options.residual != Residual::sequential)
    return dropout.add(feed_forward(norm2 ? (*norm2)(x) : normed, forward), y, forward);
  return residual(y, options.norm, *norm2, dropout, forward, [&](const Tensor& t) {
    const Tensor z = feed_forward(t, forward);
    return norm2_out ? (*norm2_out)(z) : z;
  });
}

std::string TransformerLayer::label() const {
  switch (options.norm) {
    case NormPlace::pre:
      return "TransformerLayer(pre-norm)";
    case NormPlace::post:
      return "TransformerLayer(post-norm)";
    case NormPlace::sandwich:
      return "TransformerLayer(sandwich norm)";
  }
  fail("TransformerLayer", "unknown place of the norms");
}

void DecoderCache::reorder(const Tensor& rows) {
  all_or_nothing(*this, [&](DecoderCache& after) {
    after.self.reorder(rows);
    after.cross.reorder(rows);
  });
}

DecoderLayer::DecoderLayer(LayerOptions o)
    : options(completed("DecoderLayer", std::move(o), true)) {}
DecoderLayer::DecoderLayer(Module& parent, std::string name, LayerOptions o)
    : Module(parent, std::move(name)), options(completed("DecoderLayer", std::move(o), true)) {}

MultiHeadAttention::Options DecoderLayer::plain(MultiHeadAttention::Options o) {
  o.position = {};
  o.kernel = {};
  o.window = 0;
  return o;
}

Tensor DecoderLayer::operator()(const Tensor& x, const Tensor& context, const AttentionMask& self,
                                const AttentionMask& cross, DecoderCache* cache,
                                const ForwardContext& forward) const {
  return all_or_nothing(cache, [&](DecoderCache* after) {
    Tensor y = residual(x, options.norm, norm1, dropout, forward, [&](const Tensor& t) {
      return self_attention(t, self, after ? &after->self : nullptr, forward);
    });
    y = residual(y, options.norm, norm2, dropout, forward, [&](const Tensor& t) {
      return cross_attention(t, context, cross, after ? &after->cross : nullptr, forward);
    });
    return residual(y, options.norm, norm3, dropout, forward,
                    [&](const Tensor& t) { return feed_forward(t, forward); });
  });
}

std::string DecoderLayer::label() const {
  return options.norm == NormPlace::pre ? "DecoderLayer(pre-norm)" : "DecoderLayer(post-norm)";
}

}  // namespace stretto::nn
