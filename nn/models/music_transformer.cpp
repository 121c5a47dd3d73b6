#include "nn/models/music_transformer.h"

#include <cmath>

#include "autograd/tape.h"
#include "core/all_or_nothing.h"
#include "nn/attention/linear_attention.h"
#include "nn/init.h"
#include "nn/positions/relative_table.h"
#include "ops/create.h"
#include "ops/elementwise.h"
#include "ops/matmul.h"

namespace stretto::nn {
namespace {

MusicTransformer::Options checked(MusicTransformer::Options o) {
  check(o.vocabulary >= 1 && o.d_model >= 1 && o.n_layers >= 1 && o.d_hidden >= 1,
        "MusicTransformer", "sizes must be at least 1: vocabulary ", o.vocabulary, ", d_model ",
        o.d_model, ", n_layers ", o.n_layers, ", d_hidden ", o.d_hidden);
  check(!o.relative || o.position || o.relative_length >= 1, "MusicTransformer",
        "relative attention needs relative_length, the number of distances with a row");
  check(o.learned_length >= 0 && o.init_std >= 0, "MusicTransformer", "learned_length ",
        o.learned_length, ", init_std ", o.init_std, "; neither can be negative");
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
                     .d_value = o.d_value,
                     .position = o.position,
                     .kernel = o.kernel};
  if (o.relative && !o.position)
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
  if (places.defined()) {
    parameter("places", places);
    normal_(places, 0, 0.02);
  }
  if (options.init_std > 0) start_as(options.init_std);
}

void MusicTransformer::start_as(double std) {
  for (const auto& [name, x] : named_parameters()) {
    const auto has = [&name = name](const char* part) { return name.find(part) != name.npos; };
    if (has(".position.") || has(".kernel.")) continue;
    if (name.ends_with("bias"))
      constant_(x, 0);
    else
      normal_(x, has("norm") ? 1 : 0, std);
  }
}

std::string MusicTransformer::label() const {
  return str("MusicTransformer(",
             options.position   ? ""
             : options.relative ? "relative, "
                                : "absolute, ",
             options.n_layers, " layers)");
}

Tensor MusicTransformer::embed(const Tensor& tokens, int64_t first) const {
  check(tokens.dim() == 2, "MusicTransformer", "tokens ", tokens, "; must be i64 or i32 [B, L]");
  Tensor x = embedding(tokens);
  const int64_t n = tokens.size(1);
  if (options.scale_embedding) x = x * std::sqrt(double(options.d_model));
  if (options.dropout_before_position) x = dropout(x);
  if (options.sinusoid)
    x = x + sinusoids(n, options.d_model, *options.sinusoid, first, 1, options_of(x));
  if (places.defined()) {
    check(first + n <= options.learned_length, "MusicTransformer", "positions ", first, " to ",
          first + n - 1, ", but only ", options.learned_length, " are learned");
    x = x + places.slice(0, first, first + n);
  }
  return options.dropout_before_position ? x : dropout(x);
}

Tensor MusicTransformer::operator()(const Tensor& tokens, Cache* cache) const {
  return all_or_nothing(cache, [&](Cache* after) {
    Tensor x = embed(tokens, after ? after->position : 0);
    if (after) {
      after->layers.resize(size_t(options.n_layers));
      after->position += tokens.size(1);
    }
    for (int64_t i = 0; i < options.n_layers; ++i)
      x = layers[i](x, visible(), after ? &after->layers[size_t(i)] : nullptr);
    if (norm) x = (*norm)(x);
    return out ? (*out)(x) : linear(x, embedding.weight);
  });
}

// What the attention of a layer is given.
Tensor MusicTransformer::attended(const EncoderLayer& layer, const Tensor& x) const {
  return options.norm == NormPlace::pre ? layer.norm1(x) : x;
}

Tensor MusicTransformer::attention_scores(const Tensor& tokens) const {
  NoGrad guard;
  return layers[0].self_attention.scores(attended(layers[0], embed(tokens, 0)), visible());
}

std::vector<Tensor> MusicTransformer::attention_weights(const Tensor& tokens) const {
  NoGrad guard;
  std::vector<Tensor> weights;
  Tensor x = embed(tokens, 0);
  for (int64_t i = 0; i < options.n_layers; ++i) {
    const EncoderLayer& layer = layers[i];
    weights.push_back(layer.self_attention.weights(attended(layer, x), visible()));
    x = layer(x, visible());
  }
  return weights;
}

MusicTransformer::Options music_performer(int64_t vocabulary) {
  return {.vocabulary = vocabulary,
          .d_model = 512,
          .n_layers = 24,
          .n_heads = 8,
          .d_hidden = 2048,
          .relative = false,
          .kernel =
              linear_kernel(favor({.features = 128, .kind = FavorKind::hyperbolic}), {.eps = 1e-6}),
          .norm = NormPlace::post,
          .dropout_before_position = true,
          .attention_bias = true,
          .output_bias = true,
          .init_std = 0.01};
}

}  // namespace stretto::nn
