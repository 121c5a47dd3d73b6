// Prompts of unequal length in one batch against each prompt by itself, for every positional
// encoding and kernel.
#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include "autograd/tape.h"
#include "nn/attention/left_padding.h"
#include "nn/attention/linear_attention.h"
#include "nn/models/beam_search.h"
#include "nn/models/generation.h"
#include "nn/models/language_model.h"
#include "nn/models/registry.h"
#include "nn/positions/relative_bias.h"
#include "nn/positions/relative_table.h"
#include "ops/attention/position_error.h"
#include "ops/create.h"
#include "ops/elementwise.h"
#include "ops/indexing.h"
#include "tests/support/catch.h"
#include "tests/support/compare.h"

using namespace stretto;
using nn::generate_batch;
using nn::LanguageModel;
using testing::worst_error;

namespace {

using Tokens = std::vector<int64_t>;

constexpr int64_t vocabulary = 9;
const std::vector<Tokens> prompts{{1, 2, 3, 4, 5}, {6}, {7, 8, 0, 1, 2, 3, 4, 5, 6}, {2, 2, 7}};
const std::vector<Tokens> following{{3, 1, 4, 1}, {5, 0, 2, 6}, {8, 7, 6, 5}, {0, 1, 0, 8}};

std::unique_ptr<LanguageModel> make(const LanguageModel::Options& options) {
  manual_seed(3);
  auto model = std::make_unique<LanguageModel>(options);
  model->to(f64);
  model->eval();
  for (const Tensor& p : model->parameters()) p.detach().mul_(1.5);  // larger differences of logits
  return model;
}

LanguageModel::Options options(const std::string& position, const nn::KernelEntry& kernel) {
  LanguageModel::Options o{
      .vocabulary = vocabulary,
      .n_layers = 2,
      .layer = {.d_model = 8, .attention = {.n_heads = 2}, .feed_forward = {.d_hidden = 12}}};
  o.layer.attention.kernel = kernel.make({.features = 8});
  // Tables that end within a sequence, except where that is an error.
  const int64_t reach = position == "bert" ? 13 : 4;
  nn::add_position(position,
                   {.length = 13, .max_distance = reach, .realizations = 6, .sines = 2, .taps = 4},
                   o.layer, o.input);
  return o;
}

// Calls f(options, limits) for each position and kernel that fit together in causal attention.
template <class F>
int for_each_model(F&& f) {
  int count = 0;
  std::vector<std::string> names = nn::position_names();
  names.insert(names.end(), {"learned+alibi", "sinusoid+rope", "sinusoid+fire"});
  for (const std::string& position : names)
    for (const nn::KernelEntry& kernel : nn::kernels()) {
      INFO(position << ", " << kernel.name);
      const nn::LayerOptions layer{.d_model = 8, .attention = {.n_heads = 2}};
      if (!nn::refusal(position, kernel.name, {.length = 13}, layer).empty()) continue;
      ++count;
      const bool limited = !kernel.traits().recurrent && position != "music-local";
      f(options(position, kernel), limited ? Tokens{0, 3, 7} : Tokens{0});
    }
  return count;
}

// The logits of a prompt and the tokens that follow it, one by one, of a batch without padding.
Tensor logits_alone(const LanguageModel& model, size_t i, int64_t limit) {
  LanguageModel::Cache cache = model.make_cache(limit);
  const auto n = int64_t(prompts[i].size());
  Tensors all{model(tensor(prompts[i], {1, n}), &cache)};
  for (const int64_t token : following[i])
    all.push_back(model(tensor(Tokens{token}, {1, 1}), &cache));
  return cat(all, 1);
}

// The same for all prompts in one batch. The first call is in chunks of `chunk` tokens; after two
// tokens the longest prompt leaves the batch and the others change their order.
std::vector<Tensor> logits_together(const LanguageModel& model, int64_t limit, int64_t chunk) {
  const nn::LeftPadded padded = nn::pad_left(prompts);
  LanguageModel::Cache cache = model.make_cache(limit);
  cache.left_padding = padded.left_padding;
  std::vector<Tensors> all(prompts.size());
  Tokens rows{0, 1, 2, 3};
  const auto add = [&](const Tensor& tokens, int64_t ignored) {
    const Tensor logits = model(tokens, &cache);
    for (size_t row = 0; row < rows.size(); ++row) {
      const auto i = size_t(rows[row]);
      const int64_t from = std::clamp<int64_t>(padded.left_padding[i] - ignored, 0, tokens.size(1));
      all[i].push_back(logits.slice(0, int64_t(row), int64_t(row) + 1).slice(1, from));
    }
  };
  for (int64_t at = 0; at < padded.tokens.size(1); at += chunk)
    add(padded.tokens.slice(1, at, std::min(at + chunk, padded.tokens.size(1))), at);
  for (size_t step = 0; step < following[0].size(); ++step) {
    if (step == 2) {
      cache.reorder(tensor(Tokens{3, 0, 1}, {3}));
      rows = {3, 0, 1};
    }
    Tokens next;
    for (const int64_t row : rows) next.push_back(following[size_t(row)][step]);
    add(tensor(next, {int64_t(next.size()), 1}), padded.tokens.size(1));
  }
  std::vector<Tensor> joined;
  for (const Tensors& x : all) joined.push_back(cat(x, 1));
  return joined;
}

void check_logits(const LanguageModel& model, int64_t limit, int64_t chunk) {
  INFO("limit " << limit << ", chunk " << chunk);
  const std::vector<Tensor> together = logits_together(model, limit, chunk);
  for (size_t i = 0; i < prompts.size(); ++i) {
    INFO("prompt " << i);
    const Tensor alone = logits_alone(model, i, limit);
    CHECK(worst_error(together[i], alone.slice(1, 0, together[i].size(1))) < 1e-12);
  }
}

std::vector<Tokens> one_by_one(const LanguageModel& model, const nn::GenerationOptions& o,
                               int64_t limit = 0) {
  std::vector<Tokens> all;
  for (size_t i = 0; i < prompts.size(); ++i) {
    LanguageModel::Cache cache = model.make_cache(limit);
    nn::GenerationOptions own = o;
    own.seed = nn::prompt_seed(o.seed, int64_t(i));
    all.push_back(nn::generate([&](const Tensor& x) { return model(x, &cache); }, prompts[i], own));
  }
  return all;
}

}  // namespace

TEST_CASE("generate with a model equals generate with a function and a cache") {
  const auto model = make(options("rope", nn::find_kernel("softmax")));
  const nn::GenerationOptions o{.max_tokens = 6, .seed = 3};
  LanguageModel::Cache cache = model->make_cache();
  const Tokens want =
      nn::generate([&](const Tensor& x) { return (*model)(x, &cache); }, {1, 2, 3}, o);
  Tokens streamed;
  CHECK(nn::generate(*model, {1, 2, 3}, o, [&](int64_t token) {
          streamed.push_back(token);
          return streamed.size() < 4;
        }) == Tokens(want.begin(), want.begin() + 4));
  CHECK(streamed == Tokens(want.begin(), want.begin() + 4));
  CHECK_THROWS_WITH(nn::generate(*model, {}), Containing("is empty; pass at least a start token"));
}

TEST_CASE("prompts of unequal length in one batch have the logits of each alone") {
  NoGrad guard;
  const int count = for_each_model([](const LanguageModel::Options& o, const Tokens& limits) {
    const auto model = make(o);
    for (const int64_t limit : limits) check_logits(*model, limit, 9);
    check_logits(*model, 0, 4);
  });
  CHECK(count > 40);
}

TEST_CASE("generate_batch: every model continues prompts as one by one") {
  int64_t ended = 0;
  for_each_model([&](const LanguageModel::Options& o, const Tokens& limits) {
    const auto model = make(o);
    for (const int64_t limit : limits)
      for (const double temperature : {0.0, 1.0}) {
        const nn::GenerationOptions g{
            .max_tokens = 4,
            .end_tokens = {1, 7},
            .seed = 5,
            .sampling = {.temperature = temperature, .repetition_penalty = 1.2}};
        const auto together = generate_batch(*model, prompts, g, {}, limit);
        CHECK(together == one_by_one(*model, g, limit));
        for (const Tokens& tokens : together) ended += tokens.size() < 4;
      }
  });
  CHECK(ended > 100);
}

TEST_CASE("prompts of unequal length: windows, blocks, grouped heads and post-norm") {
  NoGrad guard;
  const nn::KernelEntry& softmax = nn::find_kernel("softmax");
  for (const std::string position : {"rope", "music", "fire", "learned", "sine"}) {
    INFO(position);
    LanguageModel::Options o = options(position, softmax);
    LanguageModel::Options window = o;
    window.layer.attention.window = 3;
    for (const int64_t limit : {0, 4}) check_logits(*make(window), limit, 9);
    LanguageModel::Options blocks = o;
    blocks.block = 3;
    check_logits(*make(blocks), 0, 9);
    LanguageModel::Options other = o;
    if (position != "sine") other.layer.attention.n_kv_heads = 1;
    other.layer.norm = nn::NormPlace::post;
    other.vary_layer = [](int64_t i, nn::LayerOptions& l) { l.attention.window = 2 * i; };
    check_logits(*make(other), 0, 9);
  }
  // Learned positions and the table of bert suffice for each prompt, but not for prompt + padding.
  LanguageModel::Options exact = options("learned", softmax);
  exact.input.learned_length = 13;
  check_logits(*make(exact), 0, 9);
}

TEST_CASE("prompts of unequal length: the noise of SPE in training is common to a batch") {
  NoGrad guard;
  for (const std::string position : {"sine", "conv"})
    for (const nn::SpeShare share : {nn::SpeShare::nothing, nn::SpeShare::draws}) {
      INFO(position);
      LanguageModel::Options o = options(position, nn::find_kernel("performer"));
      nn::add_position(
          position,
          {.realizations = 6, .sines = 2, .taps = 4, .share_sine = share, .share_conv = share},
          o.layer, o.input);
      const auto model = make(o);
      model->train();
      manual_seed(5);
      const std::vector<Tensor> together = logits_together(*model, 0, 9);
      for (size_t i = 0; i < prompts.size(); ++i) {
        manual_seed(5);
        const Tensor alone = logits_alone(*model, i, 0);
        CHECK(worst_error(together[i], alone.slice(1, 0, together[i].size(1))) < 1e-12);
      }
    }
}

TEST_CASE("last_logits_only: only the last token of a call has logits") {
  NoGrad guard;
  const auto model = make(options("rope", nn::find_kernel("softmax")));
  const Tensor tokens = nn::pad_left(prompts).tokens;
  LanguageModel::Cache all, last;
  last.last_logits_only = true;
  for (const Tensor& x : {tokens, tokens.slice(1, 0, 1), tokens.slice(1, 0, 0)}) {
    const Tensor full = (*model)(x, &all), y = (*model)(x, &last);
    CHECK(worst_error(y, x.size(1) > 0 ? full.slice(1, -1) : full) < 1e-13);
  }
  CHECK(last.position == 10);
  CHECK(testing::same_bits(model->logits(model->hidden(tokens)), (*model)(tokens)));
}

TEST_CASE("a batch does not grow with the padding of prompts that have ended") {
  const auto model = make(options("alibi", nn::find_kernel("softmax")));
  const nn::LeftPadded padded = nn::pad_left(prompts);
  LanguageModel::Cache cache;
  cache.left_padding = padded.left_padding;
  (*model)(padded.tokens, &cache);
  CHECK(cache.layers[0].length() == 9);
  cache.reorder(tensor(Tokens{1, 3}, {2}));
  CHECK(cache.left_padding == Tokens{8, 6});
  CHECK(cache.layers[0].length() == 3);
  CHECK(cache.position == 9);
}

TEST_CASE("beam_search: prompts of unequal length give the results of each alone") {
  const auto model = make(options("rope", nn::find_kernel("softmax")));
  const nn::BeamSearchOptions o{.beam = 3, .max_tokens = 4, .end_tokens = {1}, .n_best = 3};
  const auto search = [&](const nn::LeftPadded& padded) {
    LanguageModel::Cache cache;
    cache.left_padding = padded.left_padding;
    return nn::beam_search([&](const Tensor& x) { return (*model)(x, &cache); },
                           [&](const Tensor& rows) { cache.reorder(rows); }, padded.tokens, o);
  };
  const auto together = search(nn::pad_left(prompts));
  for (size_t i = 0; i < prompts.size(); ++i) {
    const auto alone = search(nn::pad_left({prompts[i]}))[0];
    REQUIRE(together[i].size() == alone.size());
    for (size_t h = 0; h < alone.size(); ++h) {
      CHECK(together[i][h].tokens == alone[h].tokens);
      CHECK(together[i][h].score == Approx(alone[h].score).epsilon(1e-11));
    }
  }
}

TEST_CASE("generate_batch: it passes the padding once and removes prompts that have ended") {
  std::vector<Tokens> seen, paddings, rows;
  const auto model = [&](const Tensor& tokens, const Tokens& padding) {
    CHECK_FALSE(grad_enabled());
    seen.push_back(tokens.to_vector<int64_t>());
    paddings.push_back(padding);
    Tensor y = zeros({tokens.size(0), tokens.size(1), 10});  // the next token is the last plus 1
    for (int64_t b = 0; b < tokens.size(0); ++b) {
      const auto next = int64_t(tokens[b][-1].item()) + 1;
      y[b][-1].slice(0, next, next + 1).fill_(100);
    }
    return y;
  };
  const auto reorder = [&](const Tensor& r) { rows.push_back(r.to_vector<int64_t>()); };
  std::vector<Tokens> heard(3);
  const auto all =
      generate_batch(model, reorder, {{5}, {1, 2}, {4, 3}}, {.max_tokens = 4, .end_tokens = {6, 9}},
                     [&](int64_t prompt, int64_t token) {
                       heard[size_t(prompt)].push_back(token);
                       return token != 5;
                     });
  CHECK(all == std::vector<Tokens>{{6}, {3, 4, 5}, {4, 5}});
  CHECK(heard == all);
  CHECK(seen == std::vector<Tokens>{{0, 5, 1, 2, 4, 3}, {3, 4}, {4}});
  CHECK(paddings == std::vector<Tokens>{{1, 0, 0}, {}, {}});
  CHECK(rows == std::vector<Tokens>{{1, 2}, {0}});
  CHECK(generate_batch(model, reorder, {}, {}).empty());
  CHECK(generate_batch(model, reorder, {{1}, {2}}, {.max_tokens = 0}) ==
        std::vector<Tokens>{{}, {}});
}

TEST_CASE("generate_batch: a sequence ends where the learned positions of the model end") {
  LanguageModel::Options learned = options("learned", nn::find_kernel("softmax"));
  learned.input.learned_length = 11;
  LanguageModel::Options relative = options("bert", nn::find_kernel("softmax"));
  relative.layer.attention.position = nn::bert_relative({.max_length = 11});
  for (const LanguageModel::Options& o : {learned, relative}) {
    const auto model = make(o);
    std::vector<nn::GenerationEnd> ends(prompts.size());
    nn::GenerationOptions g{.max_tokens = 9, .end_tokens = {}, .seed = 4};
    g.on_end = [&](int64_t prompt, nn::GenerationEnd end) { ends[size_t(prompt)] = end; };
    const auto together = generate_batch(*model, prompts, g);
    // A token needs a position only once another one follows it.
    const Tokens sizes{7, 9, 3, 9};
    for (size_t i = 0; i < prompts.size(); ++i) {
      INFO("prompt " << i);
      CHECK(int64_t(together[i].size()) == sizes[i]);
      CHECK(ends[i] == (sizes[i] < 9 ? nn::GenerationEnd::length : nn::GenerationEnd::max_tokens));
    }
    CHECK(together == one_by_one(*model, g));
    CHECK(ends[0] == nn::GenerationEnd::max_tokens);  // of the last generate()
    const Tokens too_long(12, 1);
    CHECK_THROWS_AS(generate_batch(*model, {{1}, too_long}, g), PositionError);

    LanguageModel::Cache cache;
    const auto found = nn::beam_search([&](const Tensor& x) { return (*model)(x, &cache); },
                                       [&](const Tensor& rows) { cache.reorder(rows); }, prompts[0],
                                       {.beam = 2, .max_tokens = 9, .n_best = 2});
    for (const nn::Hypothesis& h : found) {
      CHECK(h.tokens.size() == 7);
      CHECK(h.end == nn::GenerationEnd::length);
    }
  }
}

TEST_CASE("generate_batch: equal prompts with neighboring seeds have different continuations") {
  const auto model = [](const Tensor& tokens, const Tokens&) {
    return zeros({tokens.size(0), tokens.size(1), 50});
  };
  std::set<Tokens> different;
  for (uint64_t seed = 0; seed < 10; ++seed)
    for (const Tokens& tokens :
         generate_batch(model, [](const Tensor&) {}, std::vector<Tokens>(8, Tokens{0}),
                        {.max_tokens = 12, .seed = seed}))
      different.insert(tokens);
  CHECK(different.size() == 80);
  CHECK(nn::prompt_seed(7, 0) == 7);
}

TEST_CASE("pad_left") {
  const nn::LeftPadded padded = nn::pad_left({{1, 2, 3}, {4}});
  CHECK(padded.tokens.shape() == Shape{2, 3});
  CHECK(padded.tokens.to_vector<int64_t>() == Tokens{1, 2, 3, 0, 0, 4});
  CHECK(padded.left_padding == Tokens{0, 2});
  CHECK(nn::pad_left({{1, 2}, {3, 4}}).left_padding.empty());
  CHECK(nn::pad_left({}).tokens.shape() == Shape{0, 0});
  CHECK_THROWS_WITH(nn::pad_left({{1}, {}}),
                    "[pad_left] sequence 1 of 2 is empty; pass at least a start token");
}

TEST_CASE("padding: masks with a column per key, with every position") {
  const NoGrad guard;
  const nn::KernelEntry& softmax = nn::find_kernel("softmax");
  const Tensor x = randn({2, 9, 8}, RandomKey{1, 2}, {.dtype = f64});
  const auto bits = [](const Shape& shape) { return gt(randn(shape, RandomKey{3, 4}), 0.5); };
  const AttentionMask masks[] = {{.causal = true, .hidden = bits({2, 1, 9, 9})},
                                 {.causal = true, .hidden = bits({2, 9, 9})},
                                 {.causal = true, .hidden = bits({1, 2, 1, 9})},
                                 {.causal = true, .hidden = bits({9, 1})},
                                 {.causal = true, .window = 2, .global_tokens = bits({2, 9})}};
  for (const std::string& position : nn::position_names()) {
    const nn::LayerOptions layer{.d_model = 8, .attention = {.n_heads = 2}};
    if (!nn::refusal(position, softmax.name, {.length = 13}, layer).empty()) continue;
    INFO(position);
    const auto model = make(options(position, softmax));
    const nn::MultiHeadAttention& attention = model->layers[0].self_attention();
    for (const AttentionMask& mask : masks) {
      if (mask.window > 0 && position == "music-local") continue;  // blocks exclude windows
      const Tensor y = attention(x, mask, nullptr, {.left_padding = {3, 0}});
      for (const int64_t row : {0, 1}) {
        const int64_t from = row == 0 ? 3 : 0;
        AttentionMask alone = mask;
        if (Tensor& global = alone.global_tokens; global.defined())
          global = global.slice(0, row, row + 1).slice(1, from);
        if (Tensor& hidden = alone.hidden; hidden.defined())
          hidden = hidden.expand({2, 2, 9, 9}).slice(0, row, row + 1).slice(2, from).slice(3, from);
        CHECK(worst_error(y.slice(0, row, row + 1).slice(1, from),
                          attention(x.slice(0, row, row + 1).slice(1, from), alone)) < 1e-13);
      }
    }
  }
  const auto fire = make(options("fire", softmax));
  CHECK_THROWS_WITH(
      fire->layers[0].self_attention()(x, {.window = 2, .global_tokens = bits({3, 9})}, nullptr,
                                       {.left_padding = {3, 0}}),
      Containing("[attention] global_tokens bool [3, 6]; must be bool or u8 [1, 6]"));
}

TEST_CASE("encodings that add terms are errors for kernels without scores") {
  CHECK_THROWS_WITH(
      nn::MultiHeadAttention(
          {.d_model = 8, .n_heads = 2, .position = nn::alibi(), .kernel = nn::linear_kernel()}),
      Containing("[MultiHeadAttention] Alibi acts on scores, which LinearKernel "
                 "does not have"));
}

TEST_CASE("padding: errors") {
  const auto model = make(options("none", nn::find_kernel("softmax")));
  const Tensor tokens = tensor(Tokens{1, 2, 3, 4}, {2, 2});
  LanguageModel::Cache cache;
  cache.left_padding = {1};
  CHECK_THROWS_WITH((*model)(tokens, &cache),
                    Containing("] padding of 1 sequences in a batch of 2; must have one entry for "
                               "each sequence"));
  CHECK(cache.layers.empty());
  CHECK_THROWS_WITH(generate_batch(*model, {{1}, {2}}, {.stop_strings = {"a"}}),
                    Containing("[generate_batch] stop_strings need the text of the tokens"));
  CHECK_THROWS_WITH(generate_batch(
                        [](const Tensor&, const Tokens&) {
                          return zeros({1, 1, 3});
                        },
                        [](const Tensor&) {}, {{1}, {2}}, {}),
                    "[generate_batch] logits f32 [1, 1, 3]; must be [2, n, V]");
  nn::MultiHeadAttention attention({.d_model = 4});
  CHECK_THROWS_WITH(
      attention(zeros({1, 3, 4}), {.key_padding = zeros({1, 3}, {.dtype = boolean})}, nullptr,
                {.left_padding = {1}}),
      "[MultiHeadAttention] both ForwardContext::left_padding and key_padding are set; "
      "accepted: one of them");
}

TEST_CASE("generating with dropout is an error, or switches it off if the model is given") {
  LanguageModel::Options o = options("rope", nn::find_kernel("softmax"));
  o.layer.dropout = 0.5;
  LanguageModel model(o);
  const auto greedy = [&] { return generate_batch(model, prompts, {.max_tokens = 4}); };
  const auto in_training = greedy();
  CHECK(model.training());
  CHECK(model.layers[0].training());
  const auto step = [&](const Tensor& tokens) { return model(tokens); };
  const std::string words =
      "the model is in training mode, with dropout 0.5; call eval() of the model first";
  CHECK_THROWS_WITH(nn::generate(step, {1}, {.max_tokens = 2}), "[generate_batch] " + words);
  CHECK_THROWS_WITH(nn::beam_search(step, [](const Tensor&) {}, {1}, {.max_tokens = 2}),
                    "[beam_search] " + words);
  o.layer.dropout = 0;
  o.layer.attention.dropout = 0.25;
  const LanguageModel other(o);
  CHECK_THROWS_WITH(nn::generate([&](const Tensor& x) { return other(x); }, {1}, {}),
                    Containing("with dropout 0.25"));
  model.eval();
  CHECK(greedy() == in_training);
  CHECK(nn::generate(step, {1}, {.max_tokens = 2}).size() == 2);
}
