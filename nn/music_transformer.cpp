#include "nn/music_transformer.h"

#include <cmath>

#include "autograd/tape.h"
#include "nn/relative_table.h"
#include "ops/elementwise.h"
#include "ops/matmul.h"

namespace stretto::nn {
namespace {

MusicTransformer::Options checked(MusicTransformer::Options o) {
  check(o.vocabulary >= 1 && o.d_model >= 1 && o.n_layers >= 1 && o.d_hidden >= 1,
        "MusicTransformer", "sizes must be at least 1: vocabulary ", o.vocabulary, ", d_model ",
        o.d_model, ", n_layers ", o.n_layers, ", d_hidden ", o.d_hidden);
  check(!o.relative || o.relative_length >= 1, "MusicTransformer",
        "relative attention needs relative_length, the number of distances with a row");
  return o;
}

}  // namespace

double MusicTransformer::embedding_std(const Options& o) {
  return 1 / std::sqrt(double(o.d_model));
}

LayerOptions MusicTransformer::layer_options(const Options& o) {
  LayerOptions layer{.d_model = o.d_model,
                     .n_heads = o.n_heads,
                     .d_hidden = o.d_hidden,
                     .norm = o.norm,
                     .activation = o.activation,
                     .dropout = o.dropout,
                     .attention_dropout = o.attention_dropout,
                     .norm_eps = o.norm_eps,
                     .attention_bias = o.attention_bias,
                     .d_key = o.d_key,
                     .d_value = o.d_value};
  if (o.relative)
    layer.position = music_relative(
        {.length = o.relative_length, .shared_by_heads = o.shared_by_heads, .beyond = o.beyond});
  return layer;
}

MusicTransformer::MusicTransformer(Options o) : options(checked(std::move(o))) { make(); }

MusicTransformer::MusicTransformer(Module& parent, std::string name, Options o)
    : Module(parent, std::move(name)), options(checked(std::move(o))) {
  make();
}

void MusicTransformer::make() {
  if (options.final_norm.value_or(options.norm == NormPlace::pre))
    norm.emplace(*this, "norm", LayerNorm::Options{options.d_model, options.norm_eps});
  if (!options.tied)
    out.emplace(*this, "out",
                Linear::Options{options.d_model, options.vocabulary, options.output_bias});
}

std::string MusicTransformer::label() const {
  return str("MusicTransformer(", options.relative ? "relative" : "absolute", ", ",
             options.n_layers, " layers)");
}

Tensor MusicTransformer::embed(const Tensor& tokens, int64_t first) const {
  check(tokens.dim() == 2, "MusicTransformer", "tokens ", tokens, "; must be i64 or i32 [B, L]");
  Tensor x = embedding(tokens);
  if (options.scale_embedding) x = x * std::sqrt(double(options.d_model));
  if (options.sinusoid)
    x = x + sinusoids(tokens.size(1), options.d_model, *options.sinusoid, first, 1, options_of(x));
  return dropout(x);
}

Tensor MusicTransformer::operator()(const Tensor& tokens, Cache* cache) const {
  Tensor x = embed(tokens, cache ? cache->position : 0);
  if (cache) {
    cache->layers.resize(size_t(options.n_layers));
    cache->position += tokens.size(1);
  }
  for (int64_t i = 0; i < options.n_layers; ++i)
    x = layers[i](x, visible(), cache ? &cache->layers[size_t(i)] : nullptr);
  if (norm) x = (*norm)(x);
  return out ? (*out)(x) : linear(x, embedding.weight);
}

std::vector<Tensor> MusicTransformer::attention_weights(const Tensor& tokens) const {
  NoGrad guard;
  std::vector<Tensor> weights;
  Tensor x = embed(tokens, 0);
  for (int64_t i = 0; i < options.n_layers; ++i) {
    const EncoderLayer& layer = layers[i];
    const Tensor seen = options.norm == NormPlace::pre ? layer.norm1(x) : x;
    weights.push_back(layer.self_attention.weights(seen, visible()));
    x = layer(x, visible());
  }
  return weights;
}

}  // namespace stretto::nn
