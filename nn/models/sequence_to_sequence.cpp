#include "nn/models/sequence_to_sequence.h"

#include <cmath>

#include "core/all_or_nothing.h"
#include "nn/init.h"
#include "nn/positions/relative_bias.h"
#include "ops/elementwise.h"
#include "ops/indexing.h"
#include "ops/matmul.h"

namespace stretto::nn {
namespace {

SequenceToSequence::Options checked(SequenceToSequence::Options o) {
  const char* op = "SequenceToSequence";
  check(o.source_vocabulary >= 1 && o.target_vocabulary >= 1 && o.layer.d_model >= 1 &&
            o.n_encoder_layers >= 1 && o.n_decoder_layers >= 1 &&
            (o.layer.feed_forward.d_hidden >= 1 || o.layer.feed_forward.network),
        op, "sizes must be at least 1: source_vocabulary ", o.source_vocabulary,
        ", target_vocabulary ", o.target_vocabulary, ", layer.d_model ", o.layer.d_model,
        ", n_encoder_layers ", o.n_encoder_layers, ", n_decoder_layers ", o.n_decoder_layers,
        ", layer.feed_forward.d_hidden ", o.layer.feed_forward.d_hidden);
  check(!o.shared_embedding || o.source_vocabulary == o.target_vocabulary, op,
        "shared_embedding needs one vocabulary; source_vocabulary is ", o.source_vocabulary,
        ", target_vocabulary ", o.target_vocabulary);
  check(o.source_step >= 1, op, "source_step ", o.source_step, "; must be at least 1");
  return o;
}

}  // namespace

InputEmbedding::Options SequenceToSequence::embedding_options(const Options& o,
                                                              int64_t vocabulary) {
  return {.vocabulary = vocabulary,
          .d_model = o.layer.d_model,
          .input = o.input,
          .dropout = o.layer.dropout,
          .std = o.input.scale ? 1 / std::sqrt(double(o.layer.d_model)) : 1,
          .norm = o.layer.norms(),
          .drawn = false};
}

StackOptions SequenceToSequence::stack(const Options& o, bool encoder) {
  LayerOptions layer = o.layer;
  const MakePositionalEncoding& own = encoder ? o.encoder_position : o.decoder_position;
  if (own) layer.attention.position = own;
  return {.n_layers = encoder ? o.n_encoder_layers : o.n_decoder_layers,
          .layer = layer,
          .final_norm = o.final_norm.value_or(o.layer.norm == NormPlace::pre),
          .final_dropout = o.final_dropout};
}

SequenceToSequence::SequenceToSequence(Options o) : options(checked(std::move(o))) { make(); }

SequenceToSequence::SequenceToSequence(Module& parent, std::string name, Options o)
    : Module(parent, std::move(name)), options(checked(std::move(o))) {
  make();
}

void SequenceToSequence::make() {
  const bool absolute = options.input.sinusoid || options.input.learned_length > 0;
  const char* const op = "SequenceToSequence";
  check_position(op, encoder.layers, absolute, ".input.sinusoid or .input.learned_length");
  check_position(op, decoder.layers, absolute, ".input.sinusoid or .input.learned_length");
  if (!options.shared_embedding)
    target_embedding.emplace(*this, "target_embedding",
                             embedding_options(options, options.target_vocabulary));
  if (!options.tied)
    out.emplace(
        *this, "out",
        Linear::Options{options.layer.d_model, options.target_vocabulary, options.output_bias});
  source_embedding.positions.reset_parameters();
  if (target_embedding) target_embedding->positions.reset_parameters();
}

SequenceToSequence::Cache SequenceToSequence::make_cache(int64_t limit) const {
  Cache cache;
  for (int64_t i = 0; i < options.n_decoder_layers; ++i)
    cache.layers.push_back({decoder.layers[i].mixer->make_cache(limit), {}});
  return cache;
}

void SequenceToSequence::Cache::reorder(const Tensor& rows) {
  all_or_nothing(*this, [&](Cache& after) {
    for (DecoderCache& layer : after.layers) layer.reorder(rows);
    if (source_padding.defined()) after.source_padding = index_select(source_padding, 0, rows);
  });
}

Tensor SequenceToSequence::encode(const Tensor& source, const Tensor& source_padding,
                                  const ForwardContext& forward) const {
  const Tensor x = source_embedding(source, forward, options.source_step);
  return encoder(x, {.key_padding = source_padding}, forward);
}

Tensor SequenceToSequence::decode(const Tensor& target, const Tensor& context,
                                  const Tensor& source_padding, Cache* cache,
                                  ForwardContext forward) const {
  check(context.defined() || (cache && cache->position > 0), "SequenceToSequence",
        "the context is undefined, which is accepted only with a cache that earlier calls have "
        "filled");
  return all_or_nothing(cache, [&](Cache* after) {
    if (after) forward.first_position = after->position;
    Tensor x = this->target()(target, forward);
    if (after && after->position == 0) after->source_padding = source_padding;
    x = decoder(x, context, {.causal = true},
                {.key_padding = after ? after->source_padding : source_padding},
                after ? &after->layers : nullptr, forward);
    if (after) after->position += target.size(1);
    if (options.scale_output) x = x * (1 / std::sqrt(double(options.layer.d_model)));
    return out ? (*out)(x) : linear(x, target_table());
  });
}

Tensor SequenceToSequence::operator()(const Tensor& source, const Tensor& target,
                                      const Tensor& source_padding) const {
  const ForwardContext forward = begin_forward();
  return decode(target, encode(source, source_padding, forward), source_padding, nullptr, forward);
}

std::string SequenceToSequence::label() const {
  return str("SequenceToSequence(", options.n_encoder_layers, " + ", options.n_decoder_layers,
             " layers)");
}

SequenceToSequence::Options transformer_base(int64_t source_vocabulary, int64_t target_vocabulary) {
  return {.source_vocabulary = source_vocabulary,
          .target_vocabulary = target_vocabulary,
          .layer = {.d_model = 512,
                    .attention = {.n_heads = 8, .bias = false},
                    .feed_forward = {.d_hidden = 2048},
                    .norm = NormPlace::post,
                    .dropout = 0.1},
          .input = {.sinusoid = Sinusoid::interleaved}};
}

SequenceToSequence::Options t5_options(int64_t vocabulary, T5Version version) {
  const bool later = version == T5Version::v1_1;
  return {.source_vocabulary = vocabulary,
          .target_vocabulary = vocabulary,
          .n_encoder_layers = later ? 8 : 6,
          .n_decoder_layers = later ? 8 : 6,
          .layer = {.d_model = 512,
                    .attention = {.n_heads = later ? 6 : 8,
                                  .d_key = 64,
                                  .d_value = 64,
                                  .bias = false,
                                  .dropout = 0.1,
                                  .scale = 1,
                                  .position = t5_bias()},
                    .feed_forward = {.d_hidden = later ? 1024 : 2048,
                                     .activation = later ? Activation::gelu_tanh : Activation::relu,
                                     .bias = false,
                                     .gated = later},
                    .dropout = 0.1,
                    .norm_kind = NormKind::rms,
                    .norm_eps = 1e-6},
          .final_dropout = true,
          .input = {.scale = false},
          .shared_embedding = true,
          .tied = !later,
          .scale_output = !later};
}

void t5_initialize(const SequenceToSequence& model) {
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
    if (f.up) draw(*f.up, f.options.d_model);
    draw(f.linear2, f.options.d_hidden);
  };
  normal_(model.source_embedding.weight);
  if (model.target_embedding) normal_(model.target_embedding->weight);
  if (model.out) normal_(model.out->weight);
  for (int64_t i = 0; i < model.encoder.layers.size(); ++i) {
    draw_attention(model.encoder.layers[i].self_attention());
    draw_feed_forward(model.encoder.layers[i].feed_forward());
  }
  for (int64_t i = 0; i < model.decoder.layers.size(); ++i) {
    draw_attention(model.decoder.layers[i].self_attention());
    draw_attention(model.decoder.layers[i].cross_attention);
    draw_feed_forward(model.decoder.layers[i].feed_forward());
  }
}

}  // namespace stretto::nn
