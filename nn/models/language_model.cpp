#include "nn/models/language_model.h"

#include <algorithm>
#include <cmath>

#include "autograd/tape.h"
#include "core/all_or_nothing.h"
#include "nn/attention/linear_attention.h"
#include "nn/init.h"
#include "nn/positions/relative_table.h"
#include "nn/positions/rotary.h"
#include "ops/elementwise.h"
#include "ops/matmul.h"

namespace stretto::nn {
namespace {

LanguageModel::Options checked(LanguageModel::Options o) {
  check(o.vocabulary >= 1 && o.n_layers >= 1 && o.layer.d_model >= 1 &&
            o.layer.feed_forward.d_hidden >= 1,
        "LanguageModel", "sizes must be at least 1: vocabulary ", o.vocabulary, ", n_layers ",
        o.n_layers, ", layer.d_model ", o.layer.d_model, ", layer.feed_forward.d_hidden ",
        o.layer.feed_forward.d_hidden);
  check(o.soft_cap >= 0 && std::isfinite(o.soft_cap), "LanguageModel", "soft_cap ", o.soft_cap,
        "; must be 0 (none) or more");
  check(o.init_std >= 0, "LanguageModel", "init_std ", o.init_std, "; cannot be negative");
  return o;
}

// Returns the input of the attention of a layer.
Tensor attended(const TransformerLayer& layer, const Tensor& x) {
  return layer.options.norm == NormPlace::post ? x : layer.norm1(x);
}

}  // namespace

InputEmbedding::Options LanguageModel::input_options(const Options& o) {
  return {.vocabulary = o.vocabulary,
          .d_model = o.layer.d_model,
          .input = o.input,
          .dropout = o.layer.dropout,
          .std = 1 / std::sqrt(double(o.layer.d_model)),
          .norm = o.layer.norms(),
          .drawn = false};
}

LayerOptions LanguageModel::options_of_layer(int64_t i) const {
  LayerOptions layer = options.layer;
  if (options.vary_layer) options.vary_layer(i, layer);
  return layer;
}

LanguageModel::LanguageModel(Options o) : options(checked(std::move(o))) { make(); }

LanguageModel::LanguageModel(Module& parent, std::string name, Options o)
    : Module(parent, std::move(name)), options(checked(std::move(o))) {
  make();
}

void LanguageModel::make() {
  const LayerOptions& layer = options.layer;
  if (options.final_norm.value_or(layers[options.n_layers - 1].options.norm != NormPlace::post))
    norm.emplace(*this, "norm", layer.norms());
  if (!options.tied)
    out.emplace(*this, "out",
                Linear::Options{layer.d_model, options.vocabulary, options.output_bias});
  embedding.positions.reset_parameters();
  if (options.init_std > 0) init_normal(options.init_std);
}

void LanguageModel::init_normal(double std) {
  for (const auto& [name, x] : named_parameters()) {
    const auto has = [&name = name](const char* part) { return name.find(part) != name.npos; };
    if (has(".position.") || has(".kernel.")) continue;
    if (name.ends_with("bias"))
      constant_(x, 0);
    else
      normal_(x, has("norm") ? 1 : 0, std);
  }
}

std::string LanguageModel::label() const {
  return str("LanguageModel(", options.n_layers, " layers)");
}

Tensor LanguageModel::operator()(const Tensor& tokens, Cache* cache,
                                 ProcessGroup* sequence_group) const {
  return all_or_nothing(
      cache, [&](Cache* after) { return logits(hidden(tokens, after, sequence_group)); });
}

Tensor LanguageModel::operator()(const Tensor& tokens, const ForwardContext& forward,
                                 Cache* cache) const {
  return all_or_nothing(cache,
                        [&](Cache* after) { return logits(hidden(tokens, forward, after)); });
}

Tensor LanguageModel::hidden(const Tensor& tokens, Cache* cache,
                             ProcessGroup* sequence_group) const {
  const int64_t n = tokens.dim() == 2 ? tokens.size(1) : 0;
  return hidden(tokens, begin_forward(sequence_group, n), cache);
}

Tensor LanguageModel::hidden(const Tensor& tokens, const ForwardContext& context,
                             Cache* cache) const {
  return all_or_nothing(cache, [&](Cache* after) {
    ForwardContext forward = context;
    if (after) {
      forward.first_position = after->position;
      forward.padding = after->padding;
    }
    ResidualStream x(embedding(tokens, forward));
    if (after) {
      for_layers("LanguageModel", after->layers, options.n_layers);
      after->position += tokens.size(1);
    }
    for (int64_t i = 0; i < options.n_layers; ++i)
      layers[i](x, visible(), after ? &after->layers[size_t(i)] : nullptr, forward);
    if (after && after->last_logits_only && tokens.size(1) > 1)
      x = ResidualStream(x.value().slice(1, -1));
    return norm ? x.normed(*norm) : x.value();
  });
}

Tensor LanguageModel::logits(const Tensor& hidden) const {
  Tensor x = out ? (*out)(hidden) : linear(hidden, embedding.weight);
  if (options.soft_cap == 0) return x;
  return tanh(x * (1 / options.soft_cap)) * options.soft_cap;
}

void LanguageModel::Cache::reorder(const Tensor& rows) {
  all_or_nothing(*this, [&](Cache& after) {
    for (KeyValueCache& layer : after.layers) layer.reorder(rows);
    if (padding.empty()) return;
    after.padding.clear();
    for (const int64_t row : rows.to_vector<int64_t>()) {
      check(row >= 0 && row < int64_t(padding.size()), "LanguageModel", "row ", row, " of ",
            int64_t(padding.size()));
      after.padding.push_back(padding[size_t(row)]);
    }
    if (after.padding.empty()) return;
    const int64_t unused = *std::min_element(after.padding.begin(), after.padding.end());
    for (KeyValueCache& layer : after.layers) layer.drop_before(unused);
  });
}

LanguageModel::Cache LanguageModel::make_cache(int64_t limit, int64_t kept) const {
  Cache cache;
  for (int64_t i = 0; i < options.n_layers; ++i)
    cache.layers.push_back(layers[i].self_attention.make_cache(limit, kept));
  return cache;
}

Tensor LanguageModel::attention_scores(const Tensor& tokens) const {
  NoGrad guard;
  return layers[0].self_attention.scores(attended(layers[0], embedding(tokens)), visible());
}

std::vector<Tensor> LanguageModel::attention_weights(const Tensor& tokens) const {
  NoGrad guard;
  const ForwardContext forward = begin_forward();
  std::vector<Tensor> weights;
  Tensor x = embedding(tokens, forward);
  for (int64_t i = 0; i < options.n_layers; ++i) {
    const TransformerLayer& layer = layers[i];
    weights.push_back(layer.self_attention.weights(attended(layer, x), visible()));
    x = layer(x, visible(), nullptr, forward);
  }
  return weights;
}

LanguageModel::Options music_transformer(int64_t vocabulary, int64_t length) {
  return {.vocabulary = vocabulary,
          .layer = {.d_model = 256,
                    .attention = {.n_heads = 8,
                                  .bias = false,
                                  .position = music_relative({.max_length = length})},
                    .feed_forward = {.d_hidden = 1024},
                    .dropout = 0.1}};
}

LanguageModel::Options music_performer(int64_t vocabulary) {
  return {.vocabulary = vocabulary,
          .n_layers = 24,
          .layer = {.d_model = 512,
                    .attention = {.n_heads = 8,
                                  .kernel = linear_kernel(
                                      favor({.features = 128, .kind = FavorKind::hyperbolic}),
                                      {.eps = 1e-6})},
                    .feed_forward = {.d_hidden = 2048},
                    .norm = NormPlace::post,
                    .dropout = 0.1},
          .input = {.dropout_before_position = true},
          .output_bias = true,
          .init_std = 0.01};
}

LanguageModel::Options llama(int64_t vocabulary) {
  return {.vocabulary = vocabulary,
          .n_layers = 32,
          .layer = {.d_model = 4096,
                    .attention = {.n_heads = 32, .bias = false, .position = rotary()},
                    .feed_forward = {.d_hidden = 11008,
                                     .activation = Activation::silu,
                                     .bias = false,
                                     .gated = true},
                    .norm_kind = NormKind::rms,
                    .norm_eps = 1e-6},
          .input = {.scale = false},
          .init_std = 0.02};
}

}  // namespace stretto::nn
