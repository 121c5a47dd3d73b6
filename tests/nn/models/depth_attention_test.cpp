// Attention over depth in place of the residual sum (LanguageModelOptions::depth_block).
#include "tests/reference/depth_attention.h"

#include <cstdlib>
#include <memory>

#include "autograd/tape.h"
#include "nn/attention/latent_attention.h"
#include "nn/models/classifier.h"
#include "nn/models/generation.h"
#include "nn/models/language_model.h"
#include "nn/models/moe.h"
#include "nn/positions/relative_table.h"
#include "nn/positions/rotary.h"
#include "nn/stack.h"
#include "ops/create.h"
#include "ops/elementwise.h"
#include "ops/indexing.h"
#include "ops/reduce.h"
#include "tests/support/catch.h"
#include "tests/support/compare.h"
#include "tests/support/gradcheck.h"
#include "tests/support/module_gradcheck.h"

using namespace stretto;
using nn::LanguageModel;
using testing::fixed_noise;
using testing::worst_error;

namespace {

const AttentionMask causal{.causal = true};

nn::LayerOptions rope_layer() {
  return {.d_model = 8,
          .attention = {.n_heads = 2, .bias = false, .position = nn::rotary()},
          .feed_forward = {.d_hidden = 12},
          .norm_kind = nn::NormKind::rms};
}

// Random values for all parameters, as queries over depth start as 0.
std::unique_ptr<LanguageModel> made(LanguageModel::Options o) {
  manual_seed(5);
  auto model = std::make_unique<LanguageModel>(std::move(o));
  model->to(f64);
  model->eval();
  const NoGrad guard;
  uint64_t stream = 20;
  for (const nn::NamedTensor& n : model->named_parameters())
    if (n.name.ends_with("_query")) n.tensor.copy_(fixed_noise(n.tensor.shape(), ++stream) * 3);
  return model;
}

// Layers with a window and separate inputs in turn; the last one has another mixer.
LanguageModel::Options mixed_model(int64_t block) {
  nn::LayerOptions layer = rope_layer();
  layer.attention = {.n_heads = 4,
                     .n_kv_heads = 2,
                     .d_key = 3,
                     .d_value = 5,
                     .bias = false,
                     .qk_clip = 0.5,
                     .v_norm_eps = 1e-3,
                     .taps = 3,
                     .scaled_taps = true,
                     .query_sinks = true,
                     .gate = nn::AttentionGate::per_element,
                     .position = nn::inkling_relative({.dim = 2, .extent = 6, .clip = 0.4})};
  layer.feed_forward.gated = true;
  layer.feed_forward.capped = nn::CappedSwiGlu{0.5, 0.8};
  layer.feed_forward.network = nn::moe({.n_experts = 3, .score = nn::RouterScore::sigmoid});
  layer.branch_taps = 3;
  layer.branch_scale = 0.5;
  LanguageModel::Options o{.vocabulary = 11, .n_layers = 5, .layer = layer, .depth_block = block};
  o.vary_layer = [](int64_t i, nn::LayerOptions& l) {
    if (i == 4) l.mixer = nn::latent_attention({.n_heads = 2, .d_latent = 5, .d_position = 4});
    if (i % 2 == 0) {
      l.attention.window = 4;
      return;
    }
    l.attention.separate_inputs = l.attention.dynamic_taps = true;
    l.attention.position =
        nn::inkling_relative({.dim = 3, .extent = 4, .log_floor = 3, .log_strength = 0.5});
  };
  return o;
}

}  // namespace

TEST_CASE("attention over depth is a weighted mean of blocks", "[depth]") {
  const Tensor tokens = randint(0, 11, {2, 6});
  for (const int64_t block : {1, 2, 3, 4, 9, -2}) {  // < 0: with separate inputs
    INFO("block " << block);
    const bool separate = block < 0;
    nn::LayerOptions options = rope_layer();
    options.attention.separate_inputs = separate;
    const auto model =
        made({.vocabulary = 11, .n_layers = 4, .layer = options, .depth_block = std::abs(block)});
    std::vector<Tensors> branches;  // of each block
    std::vector<Tensor> blocks;
    const auto read = [&](const Tensor& query) {
      std::vector<Tensor> sources = blocks;
      sources.push_back(branches.back().size() == 1 ? branches.back()[0]
                                                    : sum(stack(branches.back()), {0}));
      return reference::mixed_over_depth(sources, query);
    };
    const Tensor x = model->embedding(tokens);
    branches.push_back({x});
    for (int64_t i = 0; i < 4; ++i) {
      const nn::TransformerLayer& layer = model->layers[i];
      CHECK(layer.mixer_query.defined() == (i > 0));
      const auto in = [&](int64_t part, const nn::Norm& norm) {
        if (i == 0) return norm(x);
        return norm(read(separate ? layer.mixer_query[part] : layer.mixer_query));
      };
      Tensor input = in(0, layer.norm1);
      if (separate) input = cat({input, in(1, *layer.k_norm1), in(2, *layer.v_norm1)}, 2);
      const Tensor attended = (*layer.mixer)(input, causal);
      if (i % block == 0) {
        blocks.push_back(sum(stack(branches.back()), {0}));
        branches.emplace_back();
      }
      branches.back().push_back(attended);
      branches.back().push_back((*layer.network)((*layer.norm2)(read(layer.network_query))));
    }
    const Tensor y = (*model->norm)(read(model->output_query));
    CHECK(worst_error(model->hidden(tokens), y) < 1e-12);
    testing::check_parameter_gradients(*model, [&] { return mean(square((*model)(tokens))); });
    CHECK(model->attention_weights(tokens).size() == 4);
    CHECK(model->attention_scores(tokens).shape() == Shape{2, 2, 6, 6});
  }
}

TEST_CASE("queries over depth start as 0, and read the mean", "[depth]") {
  LanguageModel::Options o{
      .vocabulary = 11, .n_layers = 3, .layer = rope_layer(), .depth_block = 2, .init_std = 0.1};
  o.layer.attention.qk_clip = 2;
  const LanguageModel model(o);
  for (const nn::NamedTensor& n : model.named_parameters()) {
    if (n.name.ends_with("_query")) CHECK(worst_error(n.tensor, zeros({8})) == 0);
    if (n.name.ends_with("factors")) CHECK(worst_error(n.tensor, ones({2, 4})) < 0.6);
  }
  nn::ResidualStream stream(fixed_noise({1, 2, 4}, 1));
  stream.begin_block();
  stream.add(fixed_noise({1, 2, 4}, 2), nn::Dropout({0}), nn::begin_forward());
  const Tensor a = rms_norm(fixed_noise({1, 2, 4}, 1)), b = rms_norm(fixed_noise({1, 2, 4}, 2));
  CHECK(worst_error(stream.over_depth(zeros({4}, {.dtype = f64}))[0], (a + b) / 2) < 1e-14);
  CHECK(worst_error(stream.value(), fixed_noise({1, 2, 4}, 2)) == 0);
  nn::ResidualStream zero(zeros({1, 2, 4}));
  zero.begin_block();
  CHECK(worst_error(zero.over_depth(ones({4}) * 1e30)[0], zeros({1, 2, 4})) == 0);
}

TEST_CASE("attention over depth: chunks, reordered rows and padding equal one pass", "[depth]") {
  const NoGrad guard;
  for (const int64_t block : {1, 2, 3}) {
    const auto model = made(mixed_model(block));
    const Tensor tokens = randint(0, 11, {3, 15}), want = (*model)(tokens);
    for (int round = 0; round < 3; ++round) {
      LanguageModel::Cache cache;
      cache.last_logits_only = round == 2;
      Tensor rows = arange(3), continued = tokens;
      for (int64_t at = 0; at < 15;) {
        const int64_t end =
            std::min<int64_t>(15, at + 1 + randint(0, 5, {1}).to_vector<int64_t>()[0]);
        const Tensor y = (*model)(continued.slice(1, at, end), &cache);
        const int64_t first = round == 2 ? end - 1 : at;
        CHECK(worst_error(y, index_select(want, 0, rows).slice(1, first, end)) < 1e-12);
        at = end;
        const Tensor order = randint(0, rows.size(0), {3});
        cache.reorder(order);
        rows = index_select(rows, 0, order);
        continued = index_select(tokens, 0, rows);
      }
    }
    const std::vector<std::vector<int64_t>> prompts{{1, 2, 3, 4, 5}, {6}, {7, 8, 0}};
    const nn::GenerationOptions greedy{.max_tokens = 6, .sampling = {.temperature = 0}};
    const auto together = nn::generate_batch(*model, prompts, greedy);
    for (size_t i = 0; i < prompts.size(); ++i)
      CHECK(together[i] == nn::generate(*model, prompts[i], greedy));
  }
}

TEST_CASE("attention over depth: gradients of all features together, recomputed too", "[depth]") {
  LanguageModel::Options o = mixed_model(2);  // with experts that all have tokens
  o.layer.feed_forward.network = nn::moe({.n_experts = 2, .score = nn::RouterScore::sigmoid});
  const auto model = made(o);
  const Tensor tokens = randint(0, 11, {2, 7});
  const auto loss = [&] { return mean(square((*model)(tokens))); };
  testing::check_parameter_gradients(*model, loss, 1e-6);
  const auto gradients = [&](const Tensor& y) {
    model->zero_grad();
    y.backward();
    Tensors all;
    for (const nn::NamedTensor& n : model->named_parameters()) all.push_back(n.tensor.grad());
    return all;
  };
  const Tensors want = gradients(loss());
  const Tensors got = gradients(recompute([&](const Tensors&) { return loss(); }, {}));
  for (size_t i = 0; i < want.size(); ++i) CHECK(worst_error(got[i], want[i]) < 1e-12);
}

TEST_CASE("attention over depth: packed documents, f32 and bf16", "[depth]") {
  const NoGrad guard;
  LanguageModel::Options o = mixed_model(2);
  o.n_layers = 4;  // latent attention supports no segments
  o.layer.attention.position = nn::inkling_relative({.dim = 2, .extent = 6});
  const auto vary = o.vary_layer;
  o.vary_layer = [vary](int64_t i, nn::LayerOptions& l) {
    const auto position = l.attention.position;
    vary(i, l);
    l.attention.position = position;
  };
  const auto model = made(o);
  nn::ForwardContext forward = nn::begin_forward();
  forward.segments = tensor(std::vector<int64_t>{0, 0, 0, 0, 1, 1, 2, 2, 2}, {1, 9});
  const Tensor row = randint(0, 11, {1, 9}), packed = (*model)(row, forward);
  for (const auto& [from, to] : {std::pair<int64_t, int64_t>{0, 4}, {4, 6}, {6, 9}})
    CHECK(worst_error(packed.slice(1, from, to), (*model)(row.slice(1, from, to))) < 1e-12);
  const Tensor want = (*model)(row);
  model->to(f32);
  CHECK(worst_error((*model)(row).to(f64), want) < 1e-4);
  model->to(bf16);
  CHECK(worst_error((*model)(row).to(f64), want) < 0.5);
}

TEST_CASE("attention over depth names what it does not support", "[depth]") {
  LanguageModel::Options o{
      .vocabulary = 11, .n_layers = 2, .layer = rope_layer(), .depth_block = -1};
  CHECK_THROWS_WITH(LanguageModel(o), "[LanguageModel] depth_block -1; must be 0 (none) or more");
  o.depth_block = 2;
  const LanguageModel model(o);
  const Tensor tokens = zeros({1, 3}, {.dtype = i64}), x = zeros({1, 3, 8});
  LanguageModel::Cache memory = model.make_memory({.length = 3});
  CHECK_THROWS_WITH(model(tokens, &memory),
                    Containing("a memory does not support attention over depth"));
  CHECK_THROWS_WITH(model.layers[1](x, causal),
                    "[TransformerLayer] attention over depth in a layer by itself; accepted: the "
                    "layers of a LanguageModel");
  CHECK_THROWS_WITH(model.layers[1](x, x, causal, nn::ForwardContext{}),
                    Containing("a memory with attention over depth"));
  nn::ResidualStream stream(x);
  CHECK_THROWS_WITH(
      model.layers[1](stream, causal, nullptr, nn::begin_forward()),
      "[ResidualStream] attention over depth without a block; accepted: the layers of "
      "a LanguageModel");
  o.layer.norm = nn::NormPlace::post;
  CHECK_THROWS_WITH(LanguageModel(o), Containing("depth and separate_inputs are for"));
  nn::LayerOptions first = rope_layer();
  first.depth = nn::DepthPlace::first;
  CHECK_THROWS_WITH(nn::Encoder({.n_layers = 1, .layer = first}),
                    "[StackOptions] attention over depth in an Encoder or Decoder; accepted: in a "
                    "LanguageModel");
  CHECK_THROWS_WITH(
      nn::SequenceClassifier({.vocabulary = 5, .n_classes = 2, .n_layers = 1, .layer = first}),
      Containing("attention over depth in a classifier"));
  CHECK_THROWS_WITH(nn::DecoderLayer(first), Containing("depth and separate_inputs are for"));
}
