// Mixers and networks of a layer: hybrids against one pass, each sequence by itself and each
// document by itself; what a mixer does not support is an error that names it.
#include "nn/attention/mixer.h"

#include <memory>
#include <string>
#include <vector>

#include "autograd/recompute.h"
#include "autograd/tape.h"
#include "nn/attention/gated_linear_attention.h"
#include "nn/attention/mamba2.h"
#include "nn/models/generation.h"
#include "nn/models/language_model.h"
#include "nn/models/sequence_to_sequence.h"
#include "nn/positions/relative_table.h"
#include "nn/positions/rotary.h"
#include "ops/create.h"
#include "ops/elementwise.h"
#include "ops/indexing.h"
#include "ops/reduce.h"
#include "tests/support/catch.h"
#include "tests/support/compare.h"
#include "tests/support/error_of.h"

using namespace stretto;
using nn::LanguageModel;
using testing::error_of;
using testing::same_bits;
using testing::worst_error;

namespace {

constexpr int64_t vocabulary = 11;

// Adds the input's mean over the last two positions; supports what `can` says.
struct Pairs : nn::Mixer {
  Pairs(nn::Module& parent, int64_t d_model, nn::MixerTraits can_)
      : Mixer(parent), can(can_), out(*this, "out", {d_model, d_model}) {}
  nn::MixerTraits traits() const override { return can; }
  std::string label() const override { return "Pairs"; }
  Tensor mix(const Tensor& x, const AttentionMask& mask, nn::KeyValueCache* cache,
             const nn::ForwardContext&) const override {
    Tensor seen = x;
    if (mask.key_padding.defined()) seen = masked_fill(seen, mask.key_padding.unsqueeze(2), 0);
    Tensor before;
    if (cache) before = cache->state.history;
    if (!before.defined()) before = zeros({x.size(0), 1, x.size(2)}, options_of(x));
    const Tensor all = cat({before, seen}, 1);
    if (cache) cache->state.history = all.slice(1, x.size(1)).clone();
    return out(all.slice(1, 1) + 0.5 * all.slice(1, 0, x.size(1)));
  }
  const nn::MixerTraits can;
  nn::Linear out;
};

// Two networks and a further loss.
struct Two : nn::PositionWise {
  Two(nn::Module& parent, const nn::FeedForwardOptions& o, double factor_)
      : PositionWise(parent, "feed_forward"),
        factor(factor_),
        first(*this, "first", {o.d_model, o.d_model}),
        second(*this, "second", {o.d_model, o.d_model}) {}
  std::string label() const override { return "Two"; }
  Tensor operator()(const Tensor& x, const nn::ForwardContext& forward) const override {
    const Tensor y = relu(first(x));
    forward.add_loss(mean(y) * factor);
    term = mean(y).item() * factor;
    return y + second(x);
  }
  const double factor;
  mutable double term = 0;  // of the last call
  nn::Linear first, second;
};

// Layers of five kinds: Mamba-2, softmax with a gate and with a window, the delta rule, and Pairs.
LanguageModel::Options hybrid() {
  LanguageModel::Options o{
      .vocabulary = vocabulary,
      .n_layers = 5,
      .layer = {.d_model = 8, .attention = {.n_heads = 2}, .feed_forward = {.d_hidden = 12}}};
  o.vary_layer = [](int64_t i, nn::LayerOptions& layer) {
    if (i == 0) layer.mixer = nn::mamba2({.d_head = 4, .d_state = 5, .n_groups = 2, .taps = 3});
    if (i == 1)
      layer.attention.position = nn::rotary(),
      layer.attention.gate = nn::AttentionGate::per_element;
    if (i == 2)
      layer.attention.window = 4, layer.attention.position = nn::shaw_relative({.max_distance = 3});
    if (i == 3)
      layer.attention.kernel = nn::gated_delta_kernel(), layer.attention.n_value_heads = 4;
    if (i == 4) layer.mixer = nn::mixer<Pairs>(nn::MixerTraits{.cache = true, .key_padding = true});
  };
  return o;
}

std::unique_ptr<LanguageModel> make(const LanguageModel::Options& options) {
  manual_seed(3);
  auto model = std::make_unique<LanguageModel>(options);
  model->to(f64);
  model->eval();
  return model;
}

std::unique_ptr<Pairs> pairs(nn::MixerTraits can, nn::Module& parent) {
  return std::make_unique<Pairs>(parent, 3, can);
}

}  // namespace

TEST_CASE("a hybrid continues from its caches as in one pass", "[mixer]") {
  const NoGrad guard;
  const auto model = make(hybrid());
  const Tensor tokens = randint(0, vocabulary, {2, 13});
  const Tensor want = (*model)(tokens);
  for (const std::vector<int64_t>& cuts :
       {std::vector<int64_t>{0, 1, 2, 3, 13}, {0, 6, 6, 7, 13}}) {
    LanguageModel::Cache cache;
    Tensors parts;
    for (size_t i = 0; i + 1 < cuts.size(); ++i)
      parts.push_back((*model)(tokens.slice(1, cuts[i], cuts[i + 1]), &cache));
    CHECK(worst_error(cat(parts, 1), want) < 1e-12);
  }
  LanguageModel::Cache cache;
  (*model)(tokens.slice(1, 0, 5), &cache);
  cache.reorder(tensor({1, 1, 0}));
  const Tensor rows = index_select(tokens, 0, tensor({1, 1, 0}));
  CHECK(worst_error((*model)(rows.slice(1, 5), &cache),
                    index_select(want, 0, tensor({1, 1, 0})).slice(1, 5)) < 1e-12);
}

TEST_CASE("a hybrid continues prompts of unequal length as each by itself", "[mixer]") {
  const auto model = make(hybrid());
  const std::vector<std::vector<int64_t>> prompts{{1, 2, 3, 4, 5}, {6}, {7, 8, 0}};
  const nn::GenerationOptions options{.max_tokens = 6, .sampling = {.temperature = 0}};
  const auto together = nn::generate_batch(*model, prompts, options);
  for (size_t i = 0; i < prompts.size(); ++i)
    CHECK(together[i] == nn::generate(*model, prompts[i], options));

  const NoGrad guard;
  const nn::LeftPadded padded = nn::pad_left(prompts);
  LanguageModel::Cache cache{.left_padding = padded.left_padding};
  const Tensor all = (*model)(padded.tokens, &cache);
  const Tensor next = (*model)(tensor(std::vector<int64_t>{4, 5, 6}, {3, 1}), &cache);
  for (int64_t i = 0; i < 3; ++i) {
    std::vector<int64_t> one = prompts[size_t(i)];
    one.push_back(4 + i);
    const int64_t n = int64_t(one.size());
    const Tensor want = (*model)(tensor(one, {1, n}));
    CHECK(worst_error(all.slice(0, i, i + 1).slice(1, padded.left_padding[size_t(i)]),
                      want.slice(1, 0, n - 1)) < 1e-12);
    CHECK(worst_error(next.slice(0, i, i + 1), want.slice(1, n - 1)) < 1e-12);
  }
}

TEST_CASE("packed documents of a hybrid have the results that they have by themselves", "[mixer]") {
  const NoGrad guard;
  LanguageModel::Options o = hybrid();
  o.n_layers = 4;  // Pairs does not support segments
  const auto model = make(o);
  const Tensor tokens = randint(0, vocabulary, {1, 9});
  nn::ForwardContext forward = nn::begin_forward();
  forward.segments = tensor(std::vector<int64_t>{0, 0, 0, 0, 1, 1, 2, 2, 2}, {1, 9});
  const Tensor packed = (*model)(tokens, forward);
  for (const auto& [from, to] : {std::pair<int64_t, int64_t>{0, 4}, {4, 6}, {6, 9}})
    CHECK(worst_error(packed.slice(1, from, to), (*model)(tokens.slice(1, from, to))) < 1e-12);
  const auto whole = make(hybrid());
  CHECK(error_of<Error>([&] { (*whole)(tokens, forward); }) ==
        "[Mixer] Pairs does not support segments; Mixer::traits() has what it does");
}

TEST_CASE("what a mixer does not support is an error", "[mixer]") {
  nn::Module parent;
  const auto none = pairs({}, parent);
  const Tensor x = randn({2, 4, 3}), padding = zeros({2, 4}, {.dtype = boolean});
  nn::KeyValueCache cache;
  const auto refused = [&](const AttentionMask& mask, nn::KeyValueCache* with = nullptr,
                           const nn::ForwardContext& forward = {}) {
    const std::string text = error_of<Error>([&] { (*none)(x, mask, with, forward); });
    const std::string begin = "[Mixer] Pairs does not support ";
    CHECK(text.starts_with(begin));
    return text.substr(begin.size(), text.find(';') - begin.size());
  };
  CHECK(refused({}) == "a mask that is not causal");
  CHECK(refused({.causal = true, .window = 2}) == "window");
  CHECK(refused({.causal = true, .key_padding = padding}) == "key_padding");
  CHECK(refused({.causal = true}, nullptr, {.left_padding = {0, 1}}) == "left padding");
  CHECK(refused({.causal = true}, nullptr, {.segments = zeros({2, 4}, {.dtype = i64})}) ==
        "segments");
  CHECK(refused({.causal = true}, nullptr, {.prefix_lengths = zeros({2}, {.dtype = i64})}) ==
        "prefix_lengths");
  CHECK(refused({.causal = true}, &cache) == "a cache");
  CHECK_THROWS_WITH(none->make_cache(4), Containing("[Mixer] Pairs with a cache limited to 4"));

  nn::Module other;
  const auto cached = pairs({.cache = true, .key_padding = true}, other);
  const Tensor y = (*cached)(x, {.causal = true}, &cache);
  const nn::KeyValueCache before = cache;
  CHECK_THROWS_WITH((*cached)(x, {.causal = true, .key_padding = padding}, &cache),
                    Containing("one column for each cached and each new position"));
  CHECK_THROWS_WITH((*cached)(randn({3, 1, 3}), {.causal = true}, &cache), Containing("cat"));
  CHECK_THROWS_WITH((*cached)(x, {.causal = true}, &cache, {.left_padding = {1}}),
                    Containing("padding of 1 sequences in a batch of 2"));
  CHECK(cache.length() == 4);
  CHECK(same_bits(cache.state.history, before.state.history));
  cache.limit = 3;
  CHECK_THROWS_WITH((*cached)(x, {.causal = true}, &cache), Containing("accepted: no limit"));
  cache.limit = 0;
  nn::Module third;
  const auto foreign = pairs({.cache = true}, third);
  CHECK_THROWS_WITH((*foreign)(x, {.causal = true}, &cache),
                    Containing("[Mixer] the cache was filled by the layer with serial number"));
}

TEST_CASE("a layer names its parts, and a call that needs attention says so", "[mixer]") {
  const auto model = make(hybrid());
  CHECK(model->get_parameter("layers.0.mixer.in.weight").defined());
  CHECK(model->get_parameter("layers.1.self_attention.q.weight").defined());
  CHECK(error_of<Error>([&] { model->layers[0].self_attention(); }) ==
        "[TransformerLayer] the layer has Mamba2(4 heads); this call needs MultiHeadAttention");
  LanguageModel::Cache memory = model->make_memory({.length = 4});
  CHECK_THROWS_WITH((*model)(randint(0, vocabulary, {1, 3}), &memory),
                    Containing("this call needs MultiHeadAttention"));
  CHECK_THROWS_WITH(model->make_cache(5), Containing("Mamba2(4 heads) with a cache limited to 5"));

  LanguageModel::Options o = hybrid();
  o.vary_layer = {};
  CHECK_THROWS_WITH(LanguageModel(o), Containing("there is no position"));
  o.layer.mixer = nn::mixer<Pairs>(nn::MixerTraits{.ordered = false});
  CHECK_THROWS_WITH(LanguageModel(o), Containing("there is no position"));
  o.layer.mixer = nn::mamba2({.d_head = 4});
  o.init_std = 0.02;  // not of mixers
  const LanguageModel recurrent(o);
  CHECK(max(recurrent.get_parameter("layers.0.mixer.skip")).item() == 1);
  CHECK(max(abs(recurrent.get_parameter("layers.0.feed_forward.linear1.weight"))).item() < 0.2);
}

TEST_CASE("a factory must construct a child of the layer", "[mixer]") {
  nn::LayerOptions o{.d_model = 8, .attention = {.n_heads = 2}, .feed_forward = {.d_hidden = 4}};
  o.mixer = [](nn::Module&, int64_t d_model) {
    return std::make_unique<nn::Mamba2>(nn::Mamba2Options{.d_model = d_model, .d_head = 4});
  };
  CHECK(
      error_of<Error>([&] { nn::TransformerLayer{o}; }) ==
      "[LayerOptions] mixer has constructed Mamba2(4 heads); must construct a child of the module "
      "that it receives");
  o.mixer = {};
  o.feed_forward.network = [](nn::Module&, const nn::FeedForwardOptions&) { return nullptr; };
  CHECK_THAT(error_of<Error>([&] { nn::TransformerLayer{o}; }),
             Containing("feed_forward.network has constructed nothing"));
  CHECK_THAT(error_of<Error>([&] {
               nn::FeedForward{{.d_model = 8, .d_hidden = 4, .network = o.feed_forward.network}};
             }),
             Containing("accepted: in a layer's options"));
}

TEST_CASE("a network of one's own takes the place of the feed-forward network", "[mixer]") {
  LanguageModel::Options o = hybrid();
  o.layer.feed_forward = {.network = nn::position_wise<Two>(0.5)};
  const auto model = make(o);
  CHECK(error_of<Error>([&] { model->layers[1].feed_forward(); }) ==
        "[TransformerLayer] the layer has Two; this call needs FeedForward");
  const Tensor tokens = randint(0, vocabulary, {2, 6}), targets = randint(0, vocabulary, {2, 6});

  // The further losses of five layers, from the outputs of `first`.
  const nn::ForwardContext forward = nn::begin_forward();
  const Tensor loss = mean(model->nll(tokens, targets, forward));
  const Tensor total = forward.total_loss(loss);
  double terms = 0;
  for (const nn::TransformerLayer& layer : model->layers)
    terms += dynamic_cast<const Two&>(*layer.network).term;
  CHECK(total.item() == Approx(loss.item() + terms).epsilon(1e-12));
  total.backward();
  const Tensor with = model->get_parameter("layers.4.feed_forward.first.weight").grad().clone();
  model->zero_grad();
  mean(model->nll(tokens, targets)).backward();
  CHECK(worst_error(with, model->get_parameter("layers.4.feed_forward.first.weight").grad()) >
        1e-3);
  const nn::ForwardContext shares_nothing;
  (*model)(tokens, shares_nothing);
  CHECK(shares_nothing.total_loss(loss).item() == loss.item());
}

TEST_CASE("a further loss within recompute() is an error", "[mixer]") {
  const Tensor x = randn({3}, {.requires_grad = true});
  const nn::ForwardContext forward = nn::begin_forward();
  CHECK_THROWS_WITH(recompute(
                        [forward](const Tensors& in) {
                          forward.add_loss(sum(in[0]));
                          return in[0] * 2;
                        },
                        {x}),
                    Containing("[ForwardContext] a further loss cannot be used under recompute()"));
  CHECK_THROWS_WITH(forward.add_loss(x), Containing("must be a scalar"));
}

TEST_CASE("a decoder has mixers and networks too", "[mixer]") {
  const NoGrad guard;
  nn::SequenceToSequence model(
      {.source_vocabulary = 7,
       .target_vocabulary = 7,
       .n_encoder_layers = 1,
       .n_decoder_layers = 2,
       .layer = {.d_model = 8,
                 .attention = {.n_heads = 2, .position = nn::rotary()},
                 .feed_forward = {.network = nn::position_wise<Two>(0.1)}}});
  model.to(f64);
  model.eval();
  const Tensor source = randint(0, 7, {1, 4}), target = randint(0, 7, {1, 5});
  CHECK(model(source, target).shape() == Shape{1, 5, 7});
  CHECK_THROWS_WITH(model.decoder.layers[0].feed_forward(),
                    Containing("[DecoderLayer] the layer has Two"));
  nn::DecoderLayer layer({.d_model = 8,
                          .attention = {.n_heads = 2},
                          .mixer = nn::mamba2({.d_head = 4}),
                          .feed_forward = {.d_hidden = 4}});
  layer.to(f64);
  const Tensor x = randn({1, 5, 8}, {.dtype = f64}), context = randn({1, 3, 8}, {.dtype = f64});
  const Tensor want = layer(x, context);
  nn::DecoderCache cache;
  Tensors parts;
  for (int64_t t = 0; t < 5; ++t)
    parts.push_back(layer(x.slice(1, t, t + 1), context, {.causal = true}, {}, &cache));
  CHECK(worst_error(cat(parts, 1), want) < 1e-12);
}
