#include "nn/models/sequence_to_sequence.h"

#include <cmath>

#include "core/all_or_nothing.h"
#include "nn/init.h"
#include "ops/elementwise.h"
#include "ops/indexing.h"
#include "ops/matmul.h"

namespace stretto::nn {
namespace {

// Every stack gets a sharing of its own, so that a clone does not use its original's position.
LayerOptions layer_of(const StackOptions& o) {
  LayerOptions layer = o.layer;
  if (o.share_position) layer.position = shared_by_layers(layer.position);
  return layer;
}

template <class Stack>
void add_norm(Stack& stack) {
  if (stack.options.final_norm) stack.norm.emplace(stack, "norm", stack.options.layer.norms());
}

template <class Stack>
Tensor finish(const Stack& stack, const Tensor& x) {
  return stack.dropout(stack.norm ? (*stack.norm)(x) : x);
}

SequenceToSequence::Options checked(SequenceToSequence::Options o) {
  const char* op = "SequenceToSequence";
  check(o.source_vocabulary >= 1 && o.target_vocabulary >= 1 && o.d_model >= 1 &&
            o.n_encoder_layers >= 1 && o.n_decoder_layers >= 1 && o.d_hidden >= 1,
        op, "sizes must be at least 1: source_vocabulary ", o.source_vocabulary,
        ", target_vocabulary ", o.target_vocabulary, ", d_model ", o.d_model, ", n_encoder_layers ",
        o.n_encoder_layers, ", n_decoder_layers ", o.n_decoder_layers, ", d_hidden ", o.d_hidden);
  check(!o.shared_embedding || o.source_vocabulary == o.target_vocabulary, op,
        "shared_embedding needs one vocabulary; source_vocabulary is ", o.source_vocabulary,
        ", target_vocabulary ", o.target_vocabulary);
  check(o.source_step >= 1, op, "source_step ", o.source_step, "; must be at least 1");
  return o;
}

}  // namespace

Encoder::Encoder(StackOptions o)
    : options(std::move(o)), layers(*this, "layers", options.n_layers, layer_of(options)) {
  add_norm(*this);
}

Encoder::Encoder(Module& parent, std::string name, StackOptions o)
    : Module(parent, std::move(name)),
      options(std::move(o)),
      layers(*this, "layers", options.n_layers, layer_of(options)) {
  add_norm(*this);
}

Tensor Encoder::operator()(const Tensor& x, const Visibility& visible) const {
  Tensor y = x;
  for (int64_t i = 0; i < layers.size(); ++i) y = layers[i](y, visible);
  return finish(*this, y);
}

std::string Encoder::label() const { return str("Encoder(", layers.size(), " layers)"); }

Decoder::Decoder(StackOptions o)
    : options(std::move(o)), layers(*this, "layers", options.n_layers, layer_of(options)) {
  add_norm(*this);
}

Decoder::Decoder(Module& parent, std::string name, StackOptions o)
    : Module(parent, std::move(name)),
      options(std::move(o)),
      layers(*this, "layers", options.n_layers, layer_of(options)) {
  add_norm(*this);
}

Tensor Decoder::operator()(const Tensor& x, const Tensor& context, const Visibility& self,
                           const Visibility& cross, std::vector<DecoderCache>* cache) const {
  return all_or_nothing(cache, [&](std::vector<DecoderCache>* after) {
    if (after) after->resize(size_t(layers.size()));
    Tensor y = x;
    for (int64_t i = 0; i < layers.size(); ++i)
      y = layers[i](y, context, self, cross, after ? &(*after)[size_t(i)] : nullptr);
    return finish(*this, y);
  });
}

std::string Decoder::label() const { return str("Decoder(", layers.size(), " layers)"); }

double SequenceToSequence::embedding_std(const Options& o) {
  return o.scale_embedding ? 1 / std::sqrt(double(o.d_model)) : 1;
}

StackOptions SequenceToSequence::stack(const Options& o, bool encoder) {
  return {.n_layers = encoder ? o.n_encoder_layers : o.n_decoder_layers,
          .layer = {.d_model = o.d_model,
                    .n_heads = o.n_heads,
                    .d_hidden = o.d_hidden,
                    .norm = o.norm,
                    .activation = o.activation,
                    .dropout = o.dropout,
                    .attention_dropout = o.attention_dropout,
                    .norm_kind = o.norm_kind,
                    .norm_eps = o.norm_eps,
                    .attention_bias = o.attention_bias,
                    .feed_forward_bias = o.feed_forward_bias,
                    .gated = o.gated,
                    .d_key = o.d_key,
                    .d_value = o.d_value,
                    .attention_scale = o.attention_scale,
                    .position = encoder ? o.encoder_position : o.decoder_position},
          .final_norm = o.final_norm.value_or(o.norm == NormPlace::pre),
          .share_position = o.share_position,
          .final_dropout = o.final_dropout};
}

SequenceToSequence::SequenceToSequence(Options o) : options(checked(std::move(o))) { make(); }

SequenceToSequence::SequenceToSequence(Module& parent, std::string name, Options o)
    : Module(parent, std::move(name)), options(checked(std::move(o))) {
  make();
}

void SequenceToSequence::make() {
  if (!options.shared_embedding)
    target_embedding.emplace(
        *this, "target_embedding",
        Embedding::Options{options.target_vocabulary, options.d_model, embedding_std(options)});
  if (!options.tied)
    out.emplace(*this, "out",
                Linear::Options{options.d_model, options.target_vocabulary, options.output_bias});
}

void SequenceToSequence::Cache::reorder(const Tensor& rows) {
  all_or_nothing(*this, [&](Cache& after) {
    for (DecoderCache& layer : after.layers) layer.reorder(rows);
    if (source_padding.defined()) after.source_padding = index_select(source_padding, 0, rows);
  });
}

const Tensor& SequenceToSequence::target_table() const {
  return target_embedding ? target_embedding->weight : source_embedding.weight;
}

Tensor SequenceToSequence::embed(const char* what, const Tensor& table, const Tensor& tokens,
                                 int64_t first, int64_t step) const {
  check(tokens.dim() == 2, "SequenceToSequence", what, " ", tokens, "; must be i64 or i32 [B, L]");
  Tensor x = embedding(table, tokens);
  if (options.scale_embedding) x = x * std::sqrt(double(options.d_model));
  if (options.sinusoid)
    x = x + sinusoids(tokens.size(1), options.d_model, *options.sinusoid, first, step,
                      {.dtype = x.dtype(), .device = x.device()});
  return dropout(x);
}

Tensor SequenceToSequence::encode(const Tensor& source, const Tensor& source_padding) const {
  const Tensor x = embed("source", source_embedding.weight, source, 0, options.source_step);
  return encoder(x, {.key_padding = source_padding});
}

Tensor SequenceToSequence::decode(const Tensor& target, const Tensor& context,
                                  const Tensor& source_padding, Cache* cache) const {
  check(context.defined() || (cache && cache->position > 0), "SequenceToSequence",
        "no context; it may be left out only with a cache that has seen it");
  return all_or_nothing(cache, [&](Cache* after) {
    Tensor x = embed("target", target_table(), target, after ? after->position : 0, 1);
    if (after && after->position == 0) after->source_padding = source_padding;
    x = decoder(x, context, {.causal = true},
                {.key_padding = after ? after->source_padding : source_padding},
                after ? &after->layers : nullptr);
    if (after) after->position += target.size(1);
    if (options.scale_output) x = x * (1 / std::sqrt(double(options.d_model)));
    return out ? (*out)(x) : linear(x, target_table());
  });
}

Tensor SequenceToSequence::operator()(const Tensor& source, const Tensor& target,
                                      const Tensor& source_padding) const {
  return decode(target, encode(source, source_padding), source_padding);
}

std::string SequenceToSequence::label() const {
  return str("SequenceToSequence(", options.n_encoder_layers, " + ", options.n_decoder_layers,
             " layers)");
}

SequenceToSequence::Options t5_options(int64_t vocabulary, T5 version) {
  const bool later = version == T5::v1_1;
  return {.source_vocabulary = vocabulary,
          .target_vocabulary = vocabulary,
          .d_model = 512,
          .n_encoder_layers = later ? 8 : 6,
          .n_decoder_layers = later ? 8 : 6,
          .n_heads = later ? 6 : 8,
          .d_key = 64,
          .d_value = 64,
          .d_hidden = later ? 1024 : 2048,
          .activation = later ? Activation::gelu_tanh : Activation::relu,
          .gated = later,
          .sinusoid = {},
          .share_position = true,
          .norm = NormPlace::pre,
          .norm_kind = NormKind::rms,
          .norm_eps = 1e-6,
          .attention_dropout = 0.1,
          .final_dropout = true,
          .feed_forward_bias = false,
          .attention_scale = 1,
          .shared_embedding = true,
          .scale_embedding = false,
          .tied = !later,
          .scale_output = !later};
}

void t5_initialise(const SequenceToSequence& model) {
  const auto draw = [](const Linear& linear, int64_t fan) {
    normal_(linear.weight, 0, 1 / std::sqrt(double(fan)));
  };
  const auto draw_attention = [&](const MultiHeadAttention& a) {
    const MultiHeadAttention::Options& o = a.options;
    draw(a.q, o.d_model * o.d_key);
    draw(a.k, o.d_model);
    draw(a.v, o.d_model);
    draw(a.out, o.n_heads * o.d_value);
  };
  const auto draw_feed_forward = [&](const FeedForward& f) {
    draw(f.linear1, f.options.d_model);
    if (f.gate) draw(*f.gate, f.options.d_model);
    draw(f.linear2, f.options.d_hidden);
  };
  normal_(model.source_embedding.weight);
  if (model.target_embedding) normal_(model.target_embedding->weight);
  if (model.out) normal_(model.out->weight);
  for (int64_t i = 0; i < model.encoder.layers.size(); ++i) {
    draw_attention(model.encoder.layers[i].self_attention);
    draw_feed_forward(model.encoder.layers[i].feed_forward);
  }
  for (int64_t i = 0; i < model.decoder.layers.size(); ++i) {
    draw_attention(model.decoder.layers[i].self_attention);
    draw_attention(model.decoder.layers[i].cross_attention);
    draw_feed_forward(model.decoder.layers[i].feed_forward);
  }
}

}  // namespace stretto::nn
