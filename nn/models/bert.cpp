#include "nn/models/bert.h"

#include "nn/init.h"
#include "ops/create.h"
#include "ops/elementwise.h"
#include "ops/feed_forward.h"
#include "ops/indexing.h"
#include "ops/view.h"

namespace stretto::nn {
namespace {

Bert::Options checked(Bert::Options o) {
  check(o.vocabulary >= 1 && o.max_length >= 1 && o.token_types >= 0 && o.n_layers >= 1 &&
            o.layer.d_model >= 1,
        "Bert", "sizes must be at least 1: vocabulary ", o.vocabulary, ", max_length ",
        o.max_length, ", token_types ", o.token_types, " (at least 0), n_layers ", o.n_layers,
        ", layer.d_model ", o.layer.d_model);
  check(!o.disentangled || (!o.disentangled->rows.defined() && !o.layer.attention.position), "Bert",
        "disentangled attention needs its own rows and no layer.attention.position");
  check(o.first_position >= 0, "Bert", "first_position ", o.first_position,
        "; must not be negative");
  check(o.kernel_size >= 0, "Bert", "kernel_size ", o.kernel_size, "; must be odd, or 0 (none)");
  check(o.kernel_size == 0 || !o.final_norm, "Bert", "a convolution does not support final_norm");
  check(o.disentangled || !o.relative_norm, "Bert", "relative_norm needs disentangled attention");
  return o;
}

BertConvolution::Options checked(BertConvolution::Options o) {
  check(o.d_model >= 1 && o.kernel_size >= 1 && o.kernel_size % 2 == 1, "BertConvolution",
        "d_model ", o.d_model, ", kernel_size ", o.kernel_size,
        "; d_model must be at least 1, kernel_size odd");
  return o;
}

}  // namespace

BertConvolution::BertConvolution(Module& parent, std::string name, Options o)
    : Module(parent, std::move(name)), options(checked(o)) {}

Norm::Options BertConvolution::norm_options(const Options& o) {
  Norm::Options norm = o.norm;
  norm.dim = o.d_model;
  return norm;
}

Tensor BertConvolution::operator()(const Tensor& x, const Tensor& y, const Tensor& padding,
                                   const ForwardContext& forward) const {
  const Tensor hidden = padding.defined() ? padding.unsqueeze(-1) : Tensor();
  const int64_t n = x.size(1), half = options.kernel_size / 2;
  const Tensor wide = pad(hidden.defined() ? masked_fill(x, hidden, 0) : x, 1, half, half);
  Tensors neighbors;
  for (int64_t i = 0; i < options.kernel_size; ++i) neighbors.push_back(wide.slice(1, i, i + n));
  Tensor sum = window(cat(neighbors, 2));
  if (hidden.defined()) sum = masked_fill(sum, hidden, 0);
  return norm(y + activate(dropout(sum, forward), options.activation));
}

std::string BertConvolution::label() const {
  return str("BertConvolution(", options.kernel_size, " positions)");
}

InputEmbedding::Options Bert::embedding_options(const Options& o) {
  return {.vocabulary = o.vocabulary,
          .d_model = o.layer.d_model,
          .input = {.scale = false,
                    .learned_length = o.learned_positions ? o.first_position + o.max_length : 0,
                    .norm = true},
          .dropout = o.layer.dropout,
          .std = 0.02,
          .norm = o.layer.norms()};
}

Bert::Bert(Options o) : options(checked(std::move(o))) { make(); }

Bert::Bert(Module& parent, std::string name, Options o)
    : Module(parent, std::move(name)), options(checked(std::move(o))) {
  make();
}

Tensor Bert::relative_table() {
  if (!options.disentangled) return {};
  const Tensor value = empty({options.disentangled->n_rows(), options.layer.d_model});
  normal_(value, 0, 0.02);
  return parameter("relative", value);
}

LayerOptions Bert::layer_options() const {
  LayerOptions layer = options.layer;
  if (!options.disentangled) return layer;
  Disentangled::Options position = *options.disentangled;
  position.rows = relative;
  layer.attention.position = nn::disentangled(std::move(position));
  return layer;
}

void Bert::make() {
  check_position("Bert", encoder.layers, options.learned_positions || options.kernel_size > 0,
                 ".learned_positions");
  const int64_t d = options.layer.d_model;
  if (options.token_types > 0)
    token_types.emplace(*this, "token_types", Embedding::Options{options.token_types, d, 0.02});
  if (options.relative_norm) relative_norm.emplace(*this, "relative_norm", options.layer.norms());
  if (options.kernel_size > 0)
    convolution.emplace(*this, "convolution",
                        BertConvolution::Options{d, options.kernel_size, options.kernel_activation,
                                                 options.layer.dropout, options.layer.norms()});
  if (options.pooler) pooler.emplace(*this, "pooler", Linear::Options{d, d});
}

std::string Bert::label() const {
  return str("Bert(", options.n_layers,
             options.disentangled ? " layers, disentangled attention)" : " layers)");
}

Tensor Bert::operator()(const TokenBatch& x, const Tensor& types) const {
  check(x.tokens.dim() == 2, "Bert", "tokens ", x.tokens, "; must be [B, L]");
  check(!options.learned_positions || x.tokens.size(1) <= options.max_length, "Bert", "tokens ",
        x.tokens, "; must be [B, L] with L at most max_length ", options.max_length);
  check(!types.defined() || token_types, "Bert", "got token types; this model has none");
  ForwardContext forward = begin_forward();
  if (relative_norm) forward.shared_table = (*relative_norm)(relative);
  Tensor vectors = embedding.lookup(x.tokens);
  if (types.defined()) {
    vectors = vectors + (*token_types)(types);
  } else if (token_types) {
    vectors = vectors + token_types->weight.slice(0, 0, 1);  // type 0
  }
  const AttentionMask mask{.key_padding = x.padding};
  ForwardContext positions = forward;
  positions.first_position += options.first_position;
  vectors = embedding.positions(vectors, positions);
  if (!convolution) return encoder(vectors, mask, forward);
  Tensor y = encoder.layers[0](vectors, mask, nullptr, forward);
  y = (*convolution)(vectors, y, x.padding, forward);
  for (int64_t i = 1; i < options.n_layers; ++i) y = encoder.layers[i](y, mask, nullptr, forward);
  return y;
}

Tensor Bert::pooled(const Tensor& output) const {
  check(pooler.has_value(), "Bert", "pooled() needs Options::pooler");
  return tanh((*pooler)(output.select(1, 0)));
}

Bert::Options bert_base(int64_t vocabulary) {
  return {
      .vocabulary = vocabulary,
      .layer = {.d_model = 768,
                .attention = {.n_heads = 12, .dropout = 0.1},
                .feed_forward = {.d_hidden = 3072, .activation = Activation::gelu, .dropout = 0},
                .norm = NormPlace::post,
                .dropout = 0.1,
                .norm_eps = 1e-12}};
}

Bert::Options deberta_v3_base(int64_t vocabulary) {
  Bert::Options o = bert_base(vocabulary);
  o.token_types = 0;
  o.layer.norm_eps = 1e-7;
  o.pooler = false;
  o.learned_positions = false;
  o.disentangled = {.buckets = 256, .mirrored = false, .shared_projections = true, .dropout = 0.1};
  o.relative_norm = true;
  return o;
}

}  // namespace stretto::nn
