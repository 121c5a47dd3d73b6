// Latent attention against loops, with both orders of its products; caches of latents.
#include "nn/attention/latent_attention.h"

#include <memory>
#include <vector>

#include "autograd/tape.h"
#include "core/storage.h"
#include "nn/attention/gated_linear_attention.h"
#include "nn/data/draws.h"
#include "nn/models/generation.h"
#include "nn/models/language_model.h"
#include "nn/positions/relative_bias.h"
#include "nn/positions/relative_sinusoid.h"
#include "nn/positions/relative_table.h"
#include "nn/positions/spe.h"
#include "ops/create.h"
#include "ops/elementwise.h"
#include "ops/indexing.h"
#include "ops/reduce.h"
#include "tests/reference/latent_attention.h"
#include "tests/support/catch.h"
#include "tests/support/compare.h"
#include "tests/support/error_of.h"
#include "tests/support/module_gradcheck.h"

using namespace stretto;
using nn::LatentAttention;
using testing::error_of;
using testing::same_bits;
using testing::worst_error;

namespace {

constexpr int64_t d_model = 6, vocabulary = 11;

// Sizes for which few queries absorb the projections (d_latent small) or never do.
nn::LatentAttentionOptions some_options(nn::Draws& draws) {
  nn::LatentAttentionOptions o{.d_model = d_model,
                               .n_heads = 1 + draws.below(4),
                               .d_latent = 1 + draws.below(9),
                               .d_query_latent = draws.below(2) * 5,
                               .d_content = 1 + draws.below(7),
                               .d_position = 2 + 2 * draws.below(3),
                               .d_value = 1 + draws.below(7),
                               .bias = draws.below(2) == 0};
  if (draws.below(2) == 0) o.scale = 0.3;
  return o;
}

std::unique_ptr<LatentAttention> make(const nn::LatentAttentionOptions& options, uint64_t seed) {
  manual_seed(seed);
  auto module = std::make_unique<LatentAttention>(options);
  module->to(f64);
  module->eval();
  return module;
}

// A hybrid: latents with RoPE, with a table and with a bias, and a gated layer.
nn::LanguageModel::Options hybrid() {
  nn::LanguageModel::Options o{
      .vocabulary = vocabulary,
      .n_layers = 4,
      .layer = {.d_model = 8, .attention = {.n_heads = 2}, .feed_forward = {.d_hidden = 12}}};
  o.vary_layer = [](int64_t i, nn::LayerOptions& layer) {
    nn::LatentAttentionOptions latent{
        .n_heads = 16, .d_latent = 5, .d_content = 4, .d_position = 2, .d_value = 3};
    if (i == 0) latent.d_query_latent = 4;
    if (i == 1) latent.position = nn::shaw_relative({.max_distance = 3});
    if (i == 2) latent.position = nn::alibi();
    layer.mixer = nn::latent_attention(latent);
    if (i == 3) layer.mixer = {}, layer.attention.kernel = nn::gated_delta_kernel();
  };
  return o;
}

std::unique_ptr<nn::LanguageModel> hybrid_model() {
  manual_seed(3);
  auto model = std::make_unique<nn::LanguageModel>(hybrid());
  model->to(f64);
  model->eval();
  return model;
}

}  // namespace

TEST_CASE("latent attention agrees with loops, for random options", "[latent_attention]") {
  const NoGrad guard;
  nn::Draws draws(5, 0);
  for (int round = 0; round < 60; ++round) {
    nn::LatentAttentionOptions o = some_options(draws);
    const RotaryOptions rope{
        .base = 100,
        .pairing = draws.below(2) == 0 ? RotaryPairing::interleaved : RotaryPairing::half};
    o.position = nn::rotary(rope);
    const auto module = make(o, uint64_t(round));
    const Tensor x = randn({2, draws.below(8), d_model}, {.dtype = f64});
    const bool causal = draws.below(2) == 0;
    AttentionOptions reference{.mask = {.causal = causal}};
    if (draws.below(2) == 0)
      reference.mask.key_padding = lt(rand({2, x.size(1)}), 0.3);
    else if (draws.below(2) == 0)
      reference.mask.segments = randint(0, 2, {2, x.size(1)});
    INFO("round " << round << ": " << module->label());
    const Tensor y = (*module)(x, reference.mask);
    CHECK(worst_error(y, reference::latent_attention(*module, x, &rope, reference)) < 1e-12);
    CHECK(same_bits((*module)(x, reference.mask), y));
    module->to(f32);
    CHECK(worst_error((*module)(x.to(f32), reference.mask).to(f64), y) < 1e-5);
    module->to(bf16);
    CHECK(worst_error((*module)(x.to(bf16), reference.mask).to(f64), y) < 0.1);
  }
}

TEST_CASE("tables multiply the position features of latent queries", "[latent_attention]") {
  const NoGrad guard;
  nn::Draws draws(6, 0);
  const Tensor x = randn({2, 7, d_model}, {.dtype = f64});
  for (int round = 0; round < 10; ++round) {
    nn::LatentAttentionOptions o = some_options(draws);
    o.position = nn::music_relative({.max_length = 4});
    const auto module = make(o, uint64_t(round));
    AttentionOptions reference{
        .mask = {.causal = true},
        .relative_keys = {.rows = module->get_parameter("position.table"), .zero_row = 3}};
    const Tensor want = reference::latent_attention(*module, x, nullptr, reference);
    CHECK(worst_error((*module)(x, {.causal = true}), want) < 1e-12);
    nn::KeyValueCache cache;
    for (int64_t t = 0; t < 7; ++t)
      CHECK(worst_error((*module)(x.slice(1, t, t + 1), {.causal = true}, &cache),
                        want.slice(1, t, t + 1)) < 1e-12);
  }
}

TEST_CASE("latents of a cache give the output of one call, for random chunks",
          "[latent_attention]") {
  const NoGrad guard;
  nn::Draws draws(7, 0);
  const std::vector<nn::MakePositionalEncoding> positions{
      nn::rotary({.pairing = RotaryPairing::interleaved}),
      nn::rotary({.xpos = true}),
      nn::shaw_relative({.max_distance = 2}),
      nn::shaw_relative({.max_distance = 2, .values = false}),
      nn::t5_bias({.buckets = 4, .max_distance = 6}),
      nn::relative_sinusoid(),
      nn::inkling_relative({.dim = 3, .extent = 4}),
      nn::no_position()};
  for (int round = 0; round < 48; ++round) {
    nn::LatentAttentionOptions o = some_options(draws);
    o.position = positions[size_t(round) % positions.size()];
    const auto module = make(o, uint64_t(round));
    const Tensor x = randn({3, 9, d_model}, {.dtype = f64}), rows = tensor({2, 0, 0});
    const Tensor padding = lt(rand({3, 9}), 0.3 * double(draws.below(2)));
    const AttentionMask mask{.causal = true, .key_padding = padding};
    const Tensor want = (*module)(x, mask);
    INFO("round " << round << ": " << module->label());
    nn::KeyValueCache cache;
    for (int64_t at = 0; at < 9;) {
      const int64_t to = std::min<int64_t>(9, at + 1 + draws.below(4));
      AttentionMask now = mask;
      now.key_padding = padding.slice(1, 0, to);
      CHECK(worst_error((*module)(x.slice(1, at, to), now, &cache), want.slice(1, at, to)) < 1e-12);
      at = to;
      CHECK(cache.length() == at);
      CHECK(cache.k.numel() == 3 * at * (o.d_latent + o.d_position));
      CHECK(cache.v.numel() == 0);
    }
    nn::KeyValueCache first;
    (*module)(x.slice(1, 0, 5), {.causal = true}, &first);
    first.reorder(rows);
    const Tensor all = index_select(x, 0, rows);
    CHECK(worst_error((*module)(all.slice(1, 5), {.causal = true}, &first),
                      (*module)(all, {.causal = true}).slice(1, 5)) < 1e-12);
  }
}

TEST_CASE("gradients of latent attention, with both orders of its products", "[latent_attention]") {
  nn::Draws draws(8, 0);
  for (int round = 0; round < 8; ++round) {
    nn::LatentAttentionOptions o = some_options(draws);
    o.d_latent = round < 4 ? 1 : 9;  // absorbed, expanded
    if (round % 4 == 0) o.position = nn::shaw_relative({.max_distance = 2, .values = false});
    const auto module = make(o, uint64_t(round));
    const Tensor x = randn({1, 4, d_model}, {.dtype = f64, .requires_grad = true}),
                 weights = randn({1, 4, d_model}, {.dtype = f64});
    const auto loss = [&] { return sum((*module)(x, {.causal = true}) * weights); };
    INFO("round " << round);
    testing::check_parameter_gradients(*module, loss, 1e-5);
    loss().backward();
    for (const auto& [name, p] : module->named_parameters()) CHECK(p.grad().defined());
  }
}

TEST_CASE("a hybrid with latent attention continues as in one pass", "[latent_attention]") {
  const NoGrad guard;
  const auto model = hybrid_model();
  const Tensor tokens = randint(0, vocabulary, {2, 13}), want = (*model)(tokens);
  nn::LanguageModel::Cache cache;
  Tensors parts;
  for (const auto& [from, to] : {std::pair<int64_t, int64_t>{0, 6}, {6, 7}, {7, 8}, {8, 13}})
    parts.push_back((*model)(tokens.slice(1, from, to), &cache));
  CHECK(worst_error(cat(parts, 1), want) < 1e-12);

  const std::vector<std::vector<int64_t>> prompts{{1, 2, 3, 4, 5}, {6}, {7, 8, 0}};
  const nn::GenerationOptions options{.max_tokens = 6, .sampling = {.temperature = 0}};
  const auto together = nn::generate_batch(*model, prompts, options);
  for (size_t i = 0; i < prompts.size(); ++i)
    CHECK(together[i] == nn::generate(*model, prompts[i], options));

  nn::ForwardContext forward = nn::begin_forward();
  forward.segments = tensor(std::vector<int64_t>{0, 0, 0, 0, 1, 1, 2, 2, 2}, {1, 9});
  const Tensor row = randint(0, vocabulary, {1, 9}), packed = (*model)(row, forward);
  for (const auto& [from, to] : {std::pair<int64_t, int64_t>{0, 4}, {4, 6}, {6, 9}})
    CHECK(worst_error(packed.slice(1, from, to), (*model)(row.slice(1, from, to))) < 1e-12);
}

TEST_CASE("an adapter of kv_up has the same effect in both orders", "[latent_attention]") {
  const NoGrad guard;
  const auto module = make({.d_model = d_model,
                            .n_heads = 2,
                            .d_latent = 5,
                            .d_content = 4,  // keys are expanded for 40 queries, not for one
                            .d_position = 4,
                            .d_value = 4},
                           1);
  module->kv_up.set_lora({.rank = 2, .scale = 0.5});
  module->kv_up.lora()->b.copy_(randn(module->kv_up.lora()->b.shape(), {.dtype = f64}));
  module->eval();
  const Tensor x = randn({1, 40, d_model}, {.dtype = f64}), want = (*module)(x, {.causal = true});
  nn::KeyValueCache cache;
  (*module)(x.slice(1, 0, 39), {.causal = true}, &cache);
  CHECK(worst_error((*module)(x.slice(1, 39), {.causal = true}, &cache), want.slice(1, 39)) <
        1e-12);
}

TEST_CASE("decoding from latents needs no keys and values of all heads", "[latent_attention]") {
  const NoGrad guard;
  manual_seed(1);
  LatentAttention module({.d_model = 64,
                          .n_heads = 16,
                          .d_latent = 32,
                          .d_content = 64,
                          .d_position = 16,
                          .d_value = 64});
  module.eval();
  const int64_t n = 2000;
  nn::KeyValueCache cache;
  module(randn({1, n, 64}), {.causal = true}, &cache);
  const Tensor x = randn({1, 1, 64});
  reset_peak_memory();
  const int64_t before = memory_stats().live;
  module(x, {.causal = true}, &cache);
  const int64_t more = memory_stats().peak - before;
  CHECK(cache.k.numel() == (n + 1) * (32 + 16));
  // Scores of 16 heads, and perhaps the growth of the cache.
  CHECK(more < 4 * n * (16 + 2 * (32 + 16)));
  CHECK(more < 4 * n * 16 * (64 + 16 + 64) / 10);
}

TEST_CASE("latent attention with options out of range is an error", "[latent_attention]") {
  const auto refused = [](nn::LatentAttentionOptions o) {
    return error_of<Error>([&] { LatentAttention{o}; });
  };
  CHECK(refused({.d_model = 4, .d_latent = 0}) ==
        "[LatentAttention] d_latent 0; must be at least 1");
  CHECK_THAT(refused({.d_model = 0}), Containing("d_model 0"));
  CHECK_THAT(refused({.d_model = 4, .d_query_latent = -1}), Containing("d_query_latent -1"));
  CHECK_THAT(refused({.d_model = 4, .position = nn::sine_spe()}),
             Containing("a positional encoding that is not relative; accepted: RoPE"));
  const LatentAttention module({.d_model = 4, .d_latent = 3});
  CHECK_THROWS_WITH(module(randn({1, 2, 5}), {.causal = true}), Containing("must be [B, M, 4]"));
  CHECK_THROWS_WITH(module(randn({1, 2, 4}), {.causal = true, .window = 2}),
                    Containing("latents of 3) does not support window"));
  CHECK_THROWS_WITH(module.make_cache(4), Containing("with a cache limited to 4"));
}
