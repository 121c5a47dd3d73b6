#include "nn/stack.h"

#include "core/all_or_nothing.h"

namespace stretto::nn {
namespace {

StackOptions checked(const char* op, StackOptions o) {
  check(o.n_layers >= 1, op, "n_layers ", o.n_layers, "; must be at least 1");
  return o;
}

// Returns the options of a layer by its number.
auto layer_of(const StackOptions& o) {
  return [&o](int64_t i) {
    LayerOptions layer = o.layer;
    if (o.vary_layer) o.vary_layer(i, layer);
    check(layer.depth == DepthPlace::none, "StackOptions",
          "attention over depth in an Encoder or Decoder; accepted: in a LanguageModel");
    return layer;
  };
}

template <class Stack>
void add_norm(Stack& stack) {
  if (stack.options.final_norm) stack.norm.emplace(stack, "norm", stack.options.layer.norms());
}

template <class Stack>
Tensor finish(const Stack& stack, ResidualStream& x, const ForwardContext& forward) {
  return stack.dropout(stack.norm ? x.normed(*stack.norm) : x.value(), forward);
}

}  // namespace

Encoder::Encoder(StackOptions o)
    : options(checked("Encoder", std::move(o))),
      layers(*this, "layers", options.n_layers, layer_of(options)) {
  add_norm(*this);
}

Encoder::Encoder(Module& parent, std::string name, StackOptions o)
    : Module(parent, std::move(name)),
      options(checked("Encoder", std::move(o))),
      layers(*this, "layers", options.n_layers, layer_of(options)) {
  add_norm(*this);
}

Tensor Encoder::operator()(const Tensor& x, const AttentionMask& mask,
                           const ForwardContext& forward) const {
  ResidualStream y(x);
  for (const TransformerLayer& layer : layers) layer(y, mask, nullptr, forward);
  return finish(*this, y, forward);
}

std::string Encoder::label() const { return str("Encoder(", layers.size(), " layers)"); }

Decoder::Decoder(StackOptions o)
    : options(checked("Decoder", std::move(o))),
      layers(*this, "layers", options.n_layers, layer_of(options)) {
  add_norm(*this);
}

Decoder::Decoder(Module& parent, std::string name, StackOptions o)
    : Module(parent, std::move(name)),
      options(checked("Decoder", std::move(o))),
      layers(*this, "layers", options.n_layers, layer_of(options)) {
  add_norm(*this);
}

Tensor Decoder::operator()(const Tensor& x, const Tensor& context, const AttentionMask& self,
                           const AttentionMask& cross, std::vector<DecoderCache>* cache,
                           const ForwardContext& forward) const {
  return all_or_nothing(cache, [&](std::vector<DecoderCache>* after) {
    if (after) for_layers("Decoder", *after, layers.size());
    ResidualStream y(x);
    for (int64_t i = 0; i < layers.size(); ++i)
      layers[i](y, context, self, cross, after ? &(*after)[size_t(i)] : nullptr, forward);
    return finish(*this, y, forward);
  });
}

std::string Decoder::label() const { return str("Decoder(", layers.size(), " layers)"); }

}  // namespace stretto::nn
