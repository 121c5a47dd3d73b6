#include "nn/models/classifier.h"

#include <algorithm>
#include <cmath>

#include "nn/init.h"
#include "nn/positions/sinusoid.h"
#include "ops/create.h"
#include "ops/elementwise.h"
#include "ops/indexing.h"
#include "ops/reduce.h"
#include "ops/view.h"

namespace stretto::nn {
namespace {

constexpr const char* op = "SequenceClassifier";

SequenceClassifier::Options checked(SequenceClassifier::Options o) {
  const LayerOptions& l = o.layer;
  check(o.vocabulary >= 1 && o.n_classes >= 1 && l.d_model >= 1 && o.n_layers >= 1 &&
            l.feed_forward.d_hidden >= (o.pairs ? 2 : 1),
        op, "sizes must be at least 1: vocabulary ", o.vocabulary, ", n_classes ", o.n_classes,
        ", layer.d_model ", l.d_model, ", n_layers ", o.n_layers, ", layer.feed_forward.d_hidden ",
        l.feed_forward.d_hidden, o.pairs ? " (for pairs at least 2)" : "");
  check(l.depth == DepthPlace::none, op,
        "attention over depth in a classifier; accepted: in a LanguageModel");
  return o;
}

bool is_mask(const Tensor& x) { return x.dtype() == boolean || x.dtype() == u8; }

void init_dense(const Linear& layer) {
  lecun_normal_(layer.weight);
  constant_(layer.bias, 0);
}

}  // namespace

void init_encoder_layer(const TransformerLayer& layer) {
  if (const auto* a = dynamic_cast<MultiHeadAttention*>(layer.mixer.get()))
    for (const Linear* l : {&a->q, &a->k, &a->v, &a->out}) xavier_uniform_(l->weight);
  const auto* const f = dynamic_cast<FeedForward*>(layer.network.get());
  if (!f) return;
  for (const Linear* l : {&f->linear1, &f->linear2, f->up ? &*f->up : nullptr}) {
    if (!l) continue;
    xavier_uniform_(l->weight);
    if (l->bias.defined()) normal_(l->bias, 0, 1e-6);
  }
}

InputEmbedding::Options SequenceClassifier::embedding_options(const Options& o) {
  InputOptions input = o.input;
  if (input.learned_length > 0 && o.pooling == Pooling::cls) ++input.learned_length;
  return {.vocabulary = o.vocabulary,
          .d_model = o.layer.d_model,
          .input = input,
          .dropout = o.layer.dropout,
          .std = o.input.scale ? 1 / std::sqrt(double(o.layer.d_model)) : 1,
          .norm = o.layer.norms(),
          .drawn = false};
}

SequenceClassifier::SequenceClassifier(Options o) : options(checked(std::move(o))) { make(); }

SequenceClassifier::SequenceClassifier(Module& parent, std::string name, Options o)
    : Module(parent, std::move(name)), options(checked(std::move(o))) {
  make();
}

Tensor SequenceClassifier::cls_of(const Options& o) {
  return o.pooling == Pooling::cls ? zeros({o.layer.d_model}) : Tensor();
}

void SequenceClassifier::make() {
  const Options& o = options;
  check_position(op, layers, o.input.sinusoid || o.input.learned_length > 0,
                 ".input.sinusoid or .input.learned_length");
  int64_t width = o.layer.feed_forward.d_hidden;
  if (o.pairs) {
    hidden2.emplace(*this, "hidden2", Linear::Options{width, width / 2});
    width /= 2;
  }
  out.emplace(*this, "out", Linear::Options{width, o.n_classes});
  if (cls.defined()) parameter("cls", cls);
  embedding.positions.reset_parameters();
  for (const TransformerLayer& layer : layers) init_encoder_layer(layer);
  init_dense(hidden);
  if (hidden2) init_dense(*hidden2);
  init_dense(*out);
}

std::string SequenceClassifier::label() const {
  return str(op, "(", options.n_layers, " layers, ", options.n_classes, " classes",
             options.pairs ? " of pairs)" : ")");
}

Tensor SequenceClassifier::encode(const TokenBatch& s) const {
  const Options& o = options;
  const Tensor& tokens = s.tokens;
  check(tokens.dim() == 2 && tokens.size(1) >= 1, op, "tokens ", tokens,
        "; must be i64 or i32 [B, L] with L ≥ 1");
  const int64_t b = tokens.size(0), l = tokens.size(1);
  check(!s.padding.defined() || s.padding.shape() == tokens.shape(), op, "padding ", s.padding,
        " does not fit tokens ", tokens);
  check(!s.padding.defined() || is_mask(s.padding), op, "padding ", s.padding,
        "; must be bool or u8, true for tokens to ignore");

  Tensor padding = o.attend_to_padding ? Tensor() : s.padding;
  Tensor x = embedding.lookup(tokens);
  const bool with_cls = o.pooling == Pooling::cls;
  if (with_cls) {
    x = cat({cls.reshape({1, 1, x.size(2)}).expand({b, 1, x.size(2)}), x}, 1);
    if (padding.defined()) padding = cat({zeros({b, 1}, options_of(padding)), padding}, 1);
  }
  const ForwardContext forward = begin_forward();
  ResidualStream stream(embedding.positions(x, forward));
  for (const TransformerLayer& layer : layers)
    layer(stream, {.key_padding = padding}, nullptr, forward);
  x = stream.normed(norm);
  if (o.pooling != Pooling::mean) return x.select(1, 0);
  if (!padding.defined()) return mean(x, {1});
  const Tensor mask = logical_not(padding).to(x.dtype()).unsqueeze(2);  // [B, L, 1]
  return sum(x * mask, {1}) / clamp(sum(mask, {1}), 1, double(l));
}

Tensor SequenceClassifier::encode(const Tensor& tokens, const Tensor& padding) const {
  return encode(TokenBatch(tokens, padding));
}

Tensor SequenceClassifier::operator()(const Tensor& tokens, const Tensor& second) const {
  const bool ids = second.defined() && !is_mask(second) && !is_floating(second.dtype());
  if (ids) return (*this)(TokenBatch(tokens), TokenBatch(second));
  check(!options.pairs || !second.defined(), op, "a model of pairs got tokens ", tokens, " and ",
        second, "; accepted: two tensors of ids, or two TokenBatch with padding");
  return (*this)(TokenBatch(tokens, second));
}

Tensor SequenceClassifier::operator()(const TokenBatch& x) const {
  check(!options.pairs, op,
        "a model of pairs got a single sequence; accepted: two tensors of ids, or two TokenBatch");
  return (*out)(relu(hidden(encode(x))));
}

Tensor SequenceClassifier::operator()(const TokenBatch& x, const TokenBatch& y) const {
  check(options.pairs, op,
        "a model of single sequences got a pair; pass one sequence, or set Options::pairs");
  check(x.tokens.size(0) == y.tokens.size(0), op, "pairs of ", x.tokens, " and ", y.tokens,
        "; both must have the same number of rows");
  return (*out)(relu((*hidden2)(relu(hidden(cat({encode(x), encode(y)}, 1))))));
}

namespace {

// Pre-norm layers without biases in the attention.
LayerOptions arena_layer(int64_t d_model, int64_t n_heads, int64_t d_hidden) {
  return {.d_model = d_model,
          .attention = {.n_heads = n_heads, .bias = false},
          .feed_forward = {.d_hidden = d_hidden, .activation = Activation::gelu_tanh},
          .dropout = 0.1,
          .norm_eps = 1e-6};
}

constexpr InputOptions with_sinusoids{.scale = false, .sinusoid = Sinusoid::interleaved};

}  // namespace

SequenceClassifier::Options lra_listops() {
  return {.vocabulary = 16,
          .n_classes = 10,
          .n_layers = 6,
          .layer = arena_layer(512, 8, 2048),
          .input = with_sinusoids,
          .attend_to_padding = true};
}

SequenceClassifier::Options lra_text() {
  return {.vocabulary = 257,
          .layer = arena_layer(256, 4, 1024),
          .input = with_sinusoids,
          .attend_to_padding = true};
}

SequenceClassifier::Options lra_retrieval() {
  return {.vocabulary = 257,
          .layer = arena_layer(128, 4, 512),
          .input = with_sinusoids,
          .pooling = Pooling::first,
          .pairs = true,
          .attend_to_padding = true};
}

SequenceClassifier::Options lra_image() {
  LayerOptions layer = arena_layer(128, 8, 128);
  layer.dropout = 0.3;
  layer.attention.dropout = 0.2;
  layer.attention.d_key = layer.attention.d_value = 8;
  return {.vocabulary = 256,
          .n_classes = 10,
          .n_layers = 1,
          .layer = layer,
          .input = {.scale = false, .learned_length = 1024},
          .attend_to_padding = true};
}

}  // namespace stretto::nn
