#include "nn/models/transformer_xl.h"

#include <cmath>

#include "autograd/tape.h"
#include "nn/init.h"
#include "nn/optim/optim.h"
#include "nn/positions/relative_table.h"
#include "ops/matmul.h"
#include "ops/reduce.h"
#include "tests/cuda/traffic.h"
#include "tests/nn/models/transformer_xl.h"
#include "tests/support/catch.h"
#include "tests/support/module_gradcheck.h"

using namespace stretto;
using nn::LanguageModel;
using nn::NormPlace;
using nn::Sinusoid;
using testing::hidden_by_loops;
using testing::make_xl;
using testing::same_bits;
using testing::some_tokens;
using testing::tiny_xl;
using testing::worst_error;

using nn::SameLength;

TEST_CASE("Transformer-XL: names and shapes of its parameters") {
  const auto model = make_xl(tiny_xl());
  std::vector<std::string> names;
  for (const auto& [name, p] : model->named_parameters()) names.push_back(name);
  REQUIRE(names.size() == 1 + 2 + 3 * 13 + 1);
  CHECK(names[0] == "embedding.weight0");
  CHECK(names[1] == "u");
  CHECK(names[2] == "v");
  CHECK(names[3] == "layers.0.self_attention.q.weight");
  CHECK(names[6] == "layers.0.self_attention.out.weight");
  CHECK(names[7] == "layers.0.self_attention.position.r.weight");
  CHECK(names[8] == "layers.0.norm1.weight");
  CHECK(names[10] == "layers.0.feed_forward.linear1.weight");
  CHECK(names[41] == "layers.2.norm2.bias");
  CHECK(names[42] == "output.bias");
  CHECK(model->u.shape() == Shape{2, 3});
  CHECK(model->describe().find("position: RelativeSinusoid(shared u, v)") != std::string::npos);

  LanguageModel::Options o = tiny_xl();
  o.tied_biases = false;
  o.tied = false;
  o.layer.norm = NormPlace::pre;
  const auto other = make_xl(o);
  CHECK_FALSE(other->u.defined());
  CHECK(other->parameter_count() == model->parameter_count() + 2 * 2 * 6 + 11 * 8);
}

TEST_CASE("Transformer-XL: its weights are initialized as in the authors' code") {
  LanguageModel::Options o = tiny_xl();
  o.vocabulary = 300;
  o.layer.d_model = o.layer.feed_forward.d_hidden = 64;
  o.layer.attention.d_key = o.layer.attention.d_value = 32;
  o.tied_biases = false;
  o.init_std = 0.05;
  manual_seed(7);
  const LanguageModel model(o);
  for (const auto& [name, p] : model.named_parameters()) {
    INFO(name);
    const std::vector<double> values = p.to_vector<double>();
    if (name.ends_with("bias")) {
      CHECK(values == std::vector<double>(values.size(), 0.0));
      continue;
    }
    const double center = name.find("norm") == std::string::npos ? 0 : 1;
    double total = 0, squares = 0;
    for (const double x : values) {
      total += x - center;
      squares += (x - center) * (x - center);
    }
    const auto n = double(values.size());
    const double variance = o.init_std * o.init_std;
    CHECK(std::fabs(total / n) < 4.5 * std::sqrt(variance / n));
    CHECK(std::fabs(squares / n - variance) < 4.5 * variance * std::sqrt(2 / n));
  }
}

TEST_CASE("Transformer-XL: it has exactly as many parameters as the published models") {
  auto count = [](LanguageModel::Options o, bool tied_biases = true) {
    o.tied_biases = tied_biases;
    return nn::count_parameters<LanguageModel>(o);
  };
  CHECK(count(nn::enwik8_12l()) == 41'055'436);
  CHECK(count(nn::text8_12l()) == 40'964'635);
  CHECK(count(nn::enwik8_24l()) == 277'231'820);
  CHECK(count(nn::text8_24l()) == 277'050'395);
  CHECK(count(nn::wt103_base()) == 151'107'538);
  CHECK(count(nn::wt103_base(), false) == 151'119'838);
  CHECK(count(nn::wt103_large()) == 285'170'506);
  CHECK(count(nn::wt103_large(), false) == 285'205'322);
  CHECK(count(nn::lm1b_base()) == 357'812'082);
  CHECK(count(nn::lm1b_large()) == 841'295'982);
}

TEST_CASE("Transformer-XL: count_parameters() is right for all tied and adaptive options") {
  for (const int64_t d_embedding : {0, 4})
    for (const int64_t div : {1, 2})
      for (const bool tied : {false, true})
        for (const bool cut : {false, true}) {
          LanguageModel::Options o = tiny_xl();
          o.adaptive->d_embedding = d_embedding;
          o.adaptive->div = div;
          o.tied = tied;
          o.tied_biases = cut;
          if (cut) o.adaptive->cutoffs = {3, 7};
          if (cut) o.tied_projections = {false, div == 2 || d_embedding == 4, false};
          if (div == 1 && d_embedding == 0) o.tied_projections = {};
          CHECK(nn::count_parameters<LanguageModel>(o) == LanguageModel(o).parameter_count());
        }
}

TEST_CASE("Transformer-XL: its default standard deviations are those of the authors' code") {
  manual_seed(5);
  LanguageModel::Options o = nn::transformer_xl(300);
  o.n_layers = 2;
  o.layer.d_model = 64;
  o.layer.attention.n_heads = 4;
  o.layer.feed_forward.d_hidden = 256;
  o.adaptive = {.cutoffs = {100}, .div = 2};
  o.tied = false;
  const LanguageModel model(o);
  for (const auto& [name, p] : model.named_parameters()) {
    INFO(name);
    const double n = double(p.numel());
    if (name.ends_with("bias")) {
      CHECK(same_bits(p, zeros(p.shape())));
      continue;
    }
    const bool norm = name.find("norm") != std::string::npos;
    const double std = name.find("projection") != std::string::npos ? 0.01 : 0.02;
    CHECK(std::fabs(mean(p).item() - norm) < 4 * std / std::sqrt(n));
    CHECK(std::fabs(mean(square(p - double(norm))).item() / (std * std) - 1) <
          4 * std::sqrt(2 / n));
  }
}

TEST_CASE("Transformer-XL: invalid options are errors") {
  auto error = [](auto change, const std::string& text) {
    LanguageModel::Options o = tiny_xl();
    change(o);
    CHECK_THROWS_WITH(LanguageModel(o), Containing(text));
  };
  error([](auto& o) { o.vocabulary = 0; }, "sizes must be at least 1: vocabulary 0");
  error([](auto& o) { o.n_layers = 0; }, "n_layers 0");
  error([](auto& o) { o.layer.attention.d_key = 0, o.layer.attention.n_heads = 3; },
        "layer.d_model 8 is not a multiple of layer.attention.n_heads 3");
  error([](auto& o) { o.memory.length = -1; }, "must not be negative: length -1, extended 0");
  error([](auto& o) { o.memory.same_length = SameLength::original; },
        "SameLength::original with a memory of length 0 leaves no key to attend to");
  error([](auto& o) { o.adaptive->cutoffs = {7, 4}; }, "cutoff 1 is 4 after 7");
  error([](auto& o) { o.layer.d_model = 9; }, "d_model 9; must be even");
  const auto model = make_xl(tiny_xl());
  CHECK_THROWS_WITH(model->hidden(tensor<int64_t>({1, 2})),
                    "[InputEmbedding] tokens i64 [2]; must be i64 or i32 [B, L]");
  LanguageModel::Cache memory = model->make_memory({.length = 2});
  for (const Shape& shape : {Shape{2}, Shape{2, 0}})
    CHECK_THROWS_WITH(
        model->hidden(zeros(shape, {.dtype = i64}), &memory),
        str("[LanguageModel] tokens i64 ", shape, "; must be i64 or i32 [B, L] with L at least 1"));
  CHECK_THROWS_WITH(model->hidden(tensor<int64_t>({11}).unsqueeze(0)).to_vector<double>(),
                    Containing("index 11"));
  CHECK_THROWS_WITH(model->nll(some_tokens(2, 3), some_tokens(2, 4)),
                    "[LanguageModel] targets are i64 [2, 4], tokens i64 [2, 3]; their shapes must "
                    "be equal");
}

TEST_CASE("Transformer-XL agrees with the reference") {
  for (const NormPlace norm : {NormPlace::post, NormPlace::pre})
    for (const bool tied_biases : {true, false})
      for (const int64_t clamp : {0, 2, 6, 7, 20})
        for (const int64_t length : {1, 7}) {
          LanguageModel::Options o = tiny_xl({.clamp = clamp});
          o.layer.norm = norm;
          o.tied_biases = tied_biases;
          const auto model = make_xl(o);
          const Tensor tokens = some_tokens(1, length);
          const Tensor y = model->hidden(tokens);
          CHECK(worst_error(y, hidden_by_loops(*model, tokens, {})) < 1e-12);
          CHECK(same_bits(model->hidden(tokens.to(i32)), y));
        }
}

TEST_CASE("Transformer-XL: nll() agrees with log_probabilities(), and these sum to 1") {
  for (const bool cut : {false, true}) {
    LanguageModel::Options o = tiny_xl();
    if (cut) {
      o.adaptive->cutoffs = {3, 7};
      o.adaptive->div = 2;
    }
    const auto model = make_xl(o);
    const Tensor tokens = some_tokens(2, 5), targets = some_tokens(2, 5, 1);
    const Tensor log_p = (*model)(tokens), nll = model->nll(tokens, targets);
    REQUIRE(log_p.shape() == Shape{2, 5, 11});
    REQUIRE(nll.shape() == Shape{2, 5});
    CHECK(worst_error(sum(exp(log_p), {2}), ones({2, 5}, {.dtype = f64})) < 1e-13);
    CHECK(worst_error(-gather(log_p, 2, targets.unsqueeze(2)).squeeze(2), nll) < 1e-13);
    if (!cut) {
      const Tensor logits =
          linear(model->hidden(tokens), model->embedding.weight, model->output->bias);
      CHECK(worst_error(log_p, logits - logsumexp(logits, 2, true)) < 1e-13);
    }
  }
}

TEST_CASE("Transformer-XL: gradients") {
  for (const NormPlace norm : {NormPlace::post, NormPlace::pre}) {
    LanguageModel::Options o = tiny_xl({.length = 3, .clamp = 4});
    o.layer.norm = norm;
    o.n_layers = 2;
    const auto model = make_xl(o);
    const Tensor tokens = some_tokens(2, 4), targets = some_tokens(2, 4, 1);
    LanguageModel::Cache start = model->make_memory();
    model->hidden(some_tokens(2, 3, 2), &start);
    testing::check_parameter_gradients(*model, [&] {
      LanguageModel::Cache memory = start;
      return mean(model->nll(tokens, targets, &memory));
    });
  }
}

TEST_CASE("Transformer-XL refuses prefixes, and with a memory padding and segments, by name") {
  const auto model = make_xl(tiny_xl({.length = 4}));
  const Tensor tokens = some_tokens(2, 5);
  nn::ForwardContext prefix, packed;
  prefix.prefix_lengths = tensor<int64_t>({3, 3});
  packed.segments = zeros({2, 5}, {.dtype = i64});
  CHECK_THROWS_WITH(model->hidden(tokens, prefix), Containing("attention must be causal"));
  LanguageModel::Cache memory = model->make_memory();
  CHECK_THROWS_WITH(model->hidden(tokens, prefix, &memory), Containing("support prefix_lengths"));
  CHECK_THROWS_WITH(model->hidden(tokens, packed, &memory), Containing("support packed segments"));
  memory.left_padding = {1, 0};
  CHECK_THROWS_WITH(model->hidden(tokens, &memory),
                    "[LanguageModel] a memory does not support padding; call without a memory, or, "
                    "for prompts of unequal length, use make_cache()");
}

TEST_CASE("Transformer-XL: a KV cache gives the result of one pass, also with left padding") {
  const NoGrad guard;
  for (const NormPlace norm : {NormPlace::post, NormPlace::pre}) {
    LanguageModel::Options o = tiny_xl({.length = 4, .clamp = 6});
    o.layer.norm = norm;
    const auto model = make_xl(o);
    const Tensor tokens = some_tokens(2, 11), once = (*model)(tokens);
    LanguageModel::Cache cache = model->make_cache(), padded = model->make_cache();
    LanguageModel::Cache limited = model->make_cache(4), memory = model->make_memory();
    padded.left_padding = {3, 0};
    const Tensor later = (*model)(tokens.slice(0, 0, 1).slice(1, 3));
    for (const auto& [begin, end] : {std::pair{0, 5}, {5, 6}, {6, 11}}) {
      const Tensor part = tokens.slice(1, begin, end);
      CHECK(worst_error((*model)(part, &cache), once.slice(1, begin, end)) < 1e-12);
      CHECK(worst_error((*model)(part, &limited), (*model)(part, &memory)) < 1e-12);
      const int64_t first = std::max(begin, 3);
      CHECK(worst_error((*model)(part, &padded).slice(0, 0, 1).slice(1, first - begin),
                        later.slice(1, first - 3, end - 3)) < 1e-12);
    }
  }
}

TEST_CASE("Transformer-XL: dropout acts in training") {
  LanguageModel::Options o = tiny_xl({.length = 4});
  o.layer.dropout = 0.3;
  const auto model = make_xl(o);
  const Tensor tokens = some_tokens(2, 5);
  const Tensor quiet = model->hidden(tokens);
  model->train();
  auto run = [&](uint64_t seed) {
    manual_seed(seed);
    LanguageModel::Cache memory = model->make_memory();
    return testing::in_segments(*model, tokens, 3, &memory);
  };
  CHECK(same_bits(run(1), run(1)));
  CHECK_FALSE(same_bits(run(1), run(2)));
  CHECK_FALSE(same_bits(model->hidden(tokens), quiet));
  model->eval();
  CHECK(same_bits(model->hidden(tokens), quiet));
}

TEST_CASE("Transformer-XL: the sinusoids have one dropout mask for all layers and the batch") {
  // The layers run by hand with one mask of rows give the model's result; with a mask for each
  // layer they do not. All other dropouts are off, as p is 0 except for the rows.
  LanguageModel::Options o = tiny_xl();
  o.layer.dropout = 0.5;
  const auto model = make_xl(o);
  model->eval();
  model->dropout->train();  // rows and output, not the layers'
  model->embedding.positions.dropout.train();
  const Tensor tokens = some_tokens(2, 5);
  manual_seed(8);
  const Tensor got = model->hidden(tokens);

  auto by_hand = [&](bool one_mask) {
    manual_seed(8);
    const Tensor rows = nn::sinusoids(5, 8, Sinusoid::concatenated, 4, -1, {.dtype = f64});
    Tensor dropped = (*model->dropout)(rows);
    Tensor x = (*model->dropout)(model->embedding.lookup(tokens));
    for (int64_t i = 0; i < 3; ++i) {
      x = model->layers[i](x, {}, {.causal = true}, {.shared_table = dropped});
      if (!one_mask) dropped = (*model->dropout)(rows);
    }
    return (*model->dropout)(x);
  };
  CHECK(same_bits(got, by_hand(true)));
  CHECK_FALSE(same_bits(got, by_hand(false)));
}

TEST_CASE("Transformer-XL: other, absolute and no positional encodings") {
  LanguageModel::Options o = tiny_xl({.length = 16});
  const Tensor tokens = some_tokens(2, 13);
  SECTION("a table of relative positions works with memory") {
    o.layer.attention.position = nn::music_relative({.max_length = 20});
    const auto model = make_xl(o);
    CHECK_FALSE(model->u.defined());
    CHECK(worst_error(testing::in_segments(*model, tokens, 4), model->hidden(tokens)) < 1e-12);
  }
  SECTION("a RelativeSinusoid per layer works, which is the default with untied biases") {
    o.tied_biases = false;
    const auto usual = make_xl(o);
    o.layer.attention.position = nn::relative_sinusoid();
    const auto model = make_xl(o);
    CHECK(same_bits(model->hidden(tokens), usual->hidden(tokens)));
  }
  SECTION("absolute positions work without a memory only") {
    o.input.sinusoid = Sinusoid::interleaved;
    const auto model = make_xl(o);
    CHECK_FALSE(model->u.defined());
    Tensor y = model->embedding.lookup(tokens) +
               nn::sinusoids(13, 8, Sinusoid::interleaved, 0, 1, {.dtype = f64});
    for (int64_t i = 0; i < 3; ++i) y = model->layers[i](y, {}, {.causal = true});
    CHECK(same_bits(model->hidden(tokens), y));
    LanguageModel::Cache memory = model->make_memory();
    CHECK_THROWS_WITH(model->hidden(tokens, &memory),
                      Containing("a memory does not support absolute positions"));
  }
}

TEST_CASE("Transformer-XL learns to copy from its memory") {
  STRETTO_NOT_ON_MACHINE();
  // Segments of 4 of a sequence with period 6: the first tokens of a segment can only be predicted
  // from the memory.
  manual_seed(2);
  LanguageModel::Options o = tiny_xl({.length = 8});
  o.layer.d_model = 16;
  o.layer.attention.d_key = o.layer.attention.d_value = 8;
  o.n_layers = 2;
  LanguageModel model(o);
  nn::Adam optimizer(model.parameters(), {.lr = 0.01});
  auto batch = [](uint64_t stream) {
    const Tensor period = some_tokens(8, 6, stream);
    return cat({period, period, period, period, period}, 1);
  };
  auto late_loss = [&](const Tensor& tokens, bool learn, bool remember) {
    LanguageModel::Cache memory = model.make_memory();
    double total = 0;
    for (int64_t t = 0; t + 4 < 29; t += 4) {
      if (!remember) memory = model.make_memory();
      const Tensor loss =
          mean(model.nll(tokens.slice(1, t, t + 4), tokens.slice(1, t + 1, t + 5), &memory));
      if (learn) {
        model.zero_grad();
        loss.backward();
        optimizer.step();
      }
      if (t >= 12) total += loss.item() / 4;
    }
    return total;
  };
  for (uint64_t i = 0; i < 150; ++i) late_loss(batch(i), true, true);
  model.eval();
  NoGrad guard;
  const double with = late_loss(batch(1000), false, true);
  const double without = late_loss(batch(1000), false, false);
  CHECK(with < 0.5 * without);
}
