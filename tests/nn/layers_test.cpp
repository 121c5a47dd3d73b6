// Linear, Embedding, LayerNorm, RMSNorm, Dropout, FeedForward.
#include <cmath>

#include "nn/dropout.h"
#include "nn/embedding.h"
#include "nn/feed_forward.h"
#include "nn/linear.h"
#include "nn/models/sequence_to_sequence.h"
#include "nn/norm.h"
#include "nn/transformer.h"
#include "ops/create.h"
#include "ops/dropout.h"
#include "ops/elementwise.h"
#include "ops/reduce.h"
#include "tests/support/catch.h"
#include "tests/support/compare.h"
#include "tests/support/gradcheck.h"

using namespace stretto;
using stretto::testing::check_gradients;
using stretto::testing::fixed_leaf;
using stretto::testing::fixed_noise;

namespace {

// Gradients of layer(x) for x and then for each of the layer's parameters.
template <class M>
void check_layer(M& layer, const Tensor& x) {
  layer.to(f64);
  Tensors inputs = layer.parameters();
  inputs.insert(inputs.begin(), x);
  const Tensors parameters = layer.parameters();
  check_gradients(
      [&](const Tensors& in) {
        // gradcheck changes copies of its inputs; the layer sees them through its own handles.
        if (!in[1].same(parameters[0]))
          for (size_t i = 0; i < parameters.size(); ++i) parameters[i].set_data(in[i + 1].detach());
        return layer(in[0]);
      },
      inputs, false);
}

double spread(const Tensor& x) {  // root mean square
  double total = 0;
  for (double v : x.to_vector<double>()) total += v * v;
  return std::sqrt(total / double(x.numel()));
}

}  // namespace

TEST_CASE("Linear is x·wᵀ + b") {
  manual_seed(1);
  nn::Linear layer({.in = 3, .out = 2});
  CHECK(layer.label() == "Linear(3 → 2)");
  CHECK(layer.weight.shape() == Shape{2, 3});
  NoGrad guard;
  layer.weight.copy_(tensor(std::vector<float>{1, 2, 3, 4, 5, 6}, {2, 3}));
  layer.bias.copy_(tensor({0.5f, -0.5f}));
  const Tensor y = layer(tensor(std::vector<float>{1, 0, -1, 2, 1, 0}, {2, 1, 3}));
  CHECK(y.shape() == Shape{2, 1, 2});
  CHECK(y.to_vector<float>() == std::vector<float>{-1.5f, -2.5f, 4.5f, 12.5f});

  const nn::Linear plain({.in = 3, .out = 2, .bias = false});
  CHECK_FALSE(plain.bias.defined());
  CHECK(plain.label() == "Linear(3 → 2, no bias)");
  CHECK(plain.parameters().size() == 1);
  CHECK_THROWS_WITH(nn::Linear({.in = 3, .out = -1}), Containing("[Linear] sizes in = 3"));
}

TEST_CASE("Linear is initialized uniformly in ±1/√in") {
  manual_seed(2);
  const nn::Linear layer({.in = 64, .out = 1000});
  const double bound = 1.0 / 8;
  for (const Tensor& p : layer.parameters()) {
    double largest = 0;
    for (double v : p.to_vector<double>()) largest = std::max(largest, std::abs(v));
    CHECK(largest <= bound);
    CHECK(largest > 0.98 * bound);
    // The variance of a uniform is bound²/3; its estimate within five standard errors.
    const double n = double(p.numel());
    CHECK(std::pow(spread(p), 2) == Approx(bound * bound / 3).epsilon(5 * std::sqrt(0.8 / n)));
  }
}

TEST_CASE("Embedding returns rows of its table") {
  manual_seed(3);
  const nn::Embedding table({.count = 500, .dim = 100});
  CHECK(table.label() == "Embedding(500 × 100)");
  CHECK(spread(table.weight) == Approx(1).epsilon(5 * std::sqrt(0.5 / 50000)));
  const nn::Embedding small({.count = 500, .dim = 100, .std = 0.02});
  CHECK(spread(small.weight) == Approx(0.02).epsilon(5 * std::sqrt(0.5 / 50000)));

  const Tensor ids = tensor(std::vector<int64_t>{3, 0, 3, 499}, {2, 2});
  const Tensor y = table(ids);
  CHECK(y.shape() == Shape{2, 2, 100});
  CHECK(y[0][0].to_vector<float>() == table.weight[3].to_vector<float>());
  CHECK(y[1][1].to_vector<float>() == table.weight[499].to_vector<float>());
  sum(y).backward();
  CHECK(table.weight.grad()[3].to_vector<float>() == std::vector<float>(100, 2));
  CHECK(table.weight.grad()[1].to_vector<float>() == std::vector<float>(100, 0));
  CHECK_THROWS_AS(table(tensor({int64_t(500)})).to_vector<float>(), Error);
}

TEST_CASE("LayerNorm and RMSNorm normalize the last dimension") {
  nn::LayerNorm layer({.dim = 4});
  CHECK(layer.label() == "LayerNorm(4)");
  CHECK(nn::LayerNorm({.dim = 4, .bias = false}).parameters().size() == 1);
  layer.to(f64);
  const Tensor x = tensor(std::vector<double>{1, 2, 3, 6}, {1, 4});
  const std::vector<double> y = layer(x).to_vector<double>();
  for (int i = 0; i < 4; ++i)
    CHECK(y[size_t(i)] == Approx((x[0][i].item() - 3) / std::sqrt(3.5 + 1e-5)).epsilon(1e-12));

  nn::RMSNorm rms({.dim = 4});
  CHECK(rms.label() == "RMSNorm(4)");
  rms.to(f64);
  const std::vector<double> z = rms(x).to_vector<double>();
  for (int i = 0; i < 4; ++i)
    CHECK(z[size_t(i)] == Approx(x[0][i].item() / std::sqrt(12.5 + 1e-6)).epsilon(1e-12));
}

TEST_CASE("Norm is a LayerNorm or an RMSNorm, depending on its options") {
  const Tensor x = fixed_noise({3, 5}, 3, f32);
  const nn::Norm layer({.dim = 5, .eps = 0.1}),
      rms({.dim = 5, .eps = 0.1, .kind = nn::NormKind::rms});
  CHECK(layer.label() == "LayerNorm(5)");
  CHECK(rms.label() == "RMSNorm(5)");
  CHECK(nn::Norm({.dim = 5, .bias = false}).label() == "LayerNorm(5, no bias)");
  CHECK(layer.named_parameters().size() == 2);
  CHECK(rms.named_parameters().size() == 1);
  CHECK(layer(x).to_vector<float>() == nn::LayerNorm({.dim = 5, .eps = 0.1})(x).to_vector<float>());
  CHECK(rms(x).to_vector<float>() == nn::RMSNorm({.dim = 5, .eps = 0.1})(x).to_vector<float>());
  CHECK(nn::clone(nn::RMSNorm({.dim = 5, .eps = 0.1}))->options.eps == 0.1);
  // Each kind has its own default ε.
  CHECK(nn::Norm({.dim = 5}).options.eps == nn::LayerNorm({.dim = 5}).options.eps);
  CHECK(nn::Norm({.dim = 5, .kind = nn::NormKind::rms}).options.eps ==
        nn::RMSNorm({.dim = 5}).options.eps);
  CHECK(nn::default_eps(nn::NormKind::layer) == 1e-5);
  CHECK(nn::default_eps(nn::NormKind::rms) == 1e-6);
  CHECK_THROWS_WITH(nn::LayerNorm({}), "[LayerNorm] dim = 0 must be positive");
  CHECK_THROWS_WITH(nn::RMSNorm({.dim = -1}), "[RMSNorm] dim = -1 must be positive");
}

TEST_CASE("Dropout acts only in training") {
  manual_seed(4);
  nn::Dropout dropout({.p = 0.25});
  CHECK(dropout.label() == "Dropout(0.25)");
  const Tensor x = ones({10000});
  const Tensor a = dropout(x), b = dropout(x);
  int64_t dropped = 0;
  for (float v : a.to_vector<float>()) {
    CHECK((v == 0 || v == 1.0f / 0.75f));
    dropped += v == 0;
  }
  CHECK(double(dropped) == Approx(2500).margin(5 * std::sqrt(10000 * 0.25 * 0.75)));
  CHECK(a.to_vector<float>() != b.to_vector<float>());
  dropout.eval();
  CHECK(dropout(x).same(x));
  CHECK(nn::Dropout({.p = 0})(x).same(x));
  CHECK_THROWS_WITH(nn::Dropout({.p = 1.5}), Containing("[Dropout] p = 1.5"));
}

TEST_CASE("a residual stream is its input plus all branches, with dropout in training") {
  const Tensor x = fixed_noise({3, 8}, 1), first = fixed_noise({3, 8}, 2),
               second = fixed_noise({3, 8}, 3);
  const nn::ForwardContext forward;
  for (const auto kind : {nn::NormKind::layer, nn::NormKind::rms})
    for (const double p : {0.0, 0.4, 1.0})
      for (const bool training : {true, false}) {
        CAPTURE(p, training);
        nn::Dropout dropout({.p = p});
        dropout.train(training);
        nn::Norm norm({.dim = 8, .kind = kind});
        norm.to(f64);
        const auto added = [&](const Tensor& to, const Tensor& branch) {
          return training ? dropout_add(branch, to, p) : to + branch;
        };
        manual_seed(8);
        const Tensor one = added(x, first), two = added(one, second);
        const Tensor rest = rand({4});
        manual_seed(8);
        nn::ResidualStream stream(x);
        CHECK(testing::same_bits(stream.normed(norm), norm(x)));
        stream.add(first, dropout, forward);
        CHECK(testing::same_bits(stream.normed(norm), norm(one)));
        stream.add(second, dropout, forward);
        CHECK(testing::same_bits(stream.value(), two));
        CHECK(testing::same_bits(stream.value(), two));
        CHECK(testing::same_bits(stream.normed(norm), norm(two)));
        CHECK(testing::same_bits(rand({4}), rest));  // the random state has advanced as much
        // Two branches between norms.
        manual_seed(8);
        stream = nn::ResidualStream(x);
        stream.add(first, dropout, forward);
        stream.add(second, dropout, forward);
        CHECK(testing::same_bits(stream.normed(norm), norm(two)));
      }
}

TEST_CASE("an error about a missing size names the layer that needs it") {
  CHECK_THROWS_WITH(nn::FeedForward({.d_model = 32}),
                    "[FeedForward] d_model 32, d_hidden 0; must be at least 1");
  CHECK_THROWS_WITH(
      nn::TransformerLayer({.d_model = 32, .attention = {.n_heads = 2}}),
      "[TransformerLayer] d_model 32, attention.n_heads 2, feed_forward.d_hidden 0; must "
      "be at least 1");
  CHECK_THROWS_WITH(nn::DecoderLayer({.feed_forward = {.d_hidden = 64}}),
                    "[DecoderLayer] d_model 0, attention.n_heads 1, feed_forward.d_hidden 64; must "
                    "be at least 1");
  CHECK_THROWS_WITH(nn::MultiHeadAttention({.n_heads = 2}),
                    "[MultiHeadAttention] d_model 0, n_heads 2; must be at least 1");
  CHECK_THROWS_WITH(nn::LayerNorm({}), "[LayerNorm] dim = 0 must be positive");
  struct Owner : nn::Module {
  } owner;
  CHECK_THROWS_WITH(nn::AbsolutePosition(owner, "a", {.input = {.learned_length = 4}}),
                    "[AbsolutePosition] d_model 0, learned_length 4; d_model must be at least 1, "
                    "learned_length 0 (none) or more");
  CHECK_THROWS_WITH(nn::InputEmbedding(owner, "b", {.vocabulary = 9}),
                    "[InputEmbedding] vocabulary 9, d_model 0; must be at least 1");
  CHECK_THROWS_WITH(nn::Encoder({.layer = {.d_model = 4, .feed_forward = {.d_hidden = 4}}}),
                    "[Encoder] n_layers 0; must be at least 1");
  CHECK_THROWS_WITH(nn::Decoder({.layer = {.d_model = 4, .feed_forward = {.d_hidden = 4}}}),
                    "[Decoder] n_layers 0; must be at least 1");
}

TEST_CASE("FeedForward is two linear layers with an activation between them") {
  manual_seed(6);
  nn::FeedForward layer({.d_model = 3, .d_hidden = 5, .activation = nn::Activation::gelu});
  CHECK(layer.label() == "FeedForward(3 → 5, gelu)");
  const Tensor x = fixed_noise({2, 3}, 1, f32);
  CHECK(layer(x).to_vector<float>() == layer.linear2(gelu(layer.linear1(x))).to_vector<float>());
  const std::vector<nn::NamedTensor> named = layer.named_parameters();
  REQUIRE(named.size() == 4);
  CHECK(named[0].name == "linear1.weight");
  CHECK(named[3].name == "linear2.bias");

  for (auto [f, text] : {std::pair{nn::Activation::relu, "relu"},
                         {nn::Activation::gelu, "gelu"},
                         {nn::Activation::gelu_tanh, "gelu_tanh"},
                         {nn::Activation::silu, "silu"}})
    CHECK(nn::name(f) == std::string(text));
  CHECK(nn::activate(tensor({-1.0f, 2.0f}), nn::Activation::relu).to_vector<float>() ==
        std::vector<float>{0, 2});
  CHECK(nn::activate(tensor({1.0}), nn::Activation::silu).item() ==
        Approx(1 / (1 + std::exp(-1.0))));

  nn::FeedForward wet({.d_model = 3, .d_hidden = 500, .dropout = 0.5});
  CHECK(wet(x).to_vector<float>() != wet(x).to_vector<float>());
  wet.eval();
  CHECK(wet(x).to_vector<float>() == wet(x).to_vector<float>());
}

TEST_CASE("FeedForward, gated, multiplies the activation by another linear layer") {
  manual_seed(6);
  nn::FeedForward layer({.d_model = 3,
                         .d_hidden = 5,
                         .activation = nn::Activation::gelu_tanh,
                         .dropout = 0.5,
                         .bias = false,
                         .gated = true});
  CHECK(layer.label() == "FeedForward(3 → 5, gelu_tanh, gated)");
  CHECK(layer.parameter_count() == 3 * 3 * 5);
  CHECK(layer.children().back().first == "up");
  const Tensor x = fixed_noise({2, 3}, 1, f32);
  CHECK(layer(x).to_vector<float>() != layer(x).to_vector<float>());
  layer.eval();
  CHECK(layer(x).to_vector<float>() ==
        layer.linear2(gelu_tanh(layer.linear1(x)) * (*layer.up)(x)).to_vector<float>());
}

TEST_CASE("FeedForward with a clamped gate equals its formula") {
  manual_seed(6);
  nn::FeedForward layer({.d_model = 3,
                         .d_hidden = 40,
                         .gated = true,
                         .clamped = nn::ClampedSwiGlu{.alpha = 1.3, .limit = 0.3}});
  CHECK(layer.label() == "FeedForward(3 → 40, clamped silu, gated)");
  layer.to(f64);
  const Tensor x = fixed_noise({4, 3}, 1), gate = layer.linear1(x), up = (*layer.up)(x);
  std::vector<double> hidden;
  int64_t clamped = 0;
  for (int64_t i = 0; i < 4; ++i)
    for (int64_t j = 0; j < 40; ++j) {
      const double g = std::min(gate[i][j].item(), 0.3);
      const double u = std::clamp(up[i][j].item(), -0.3, 0.3);
      clamped += g == 0.3 || std::fabs(u) == 0.3;
      hidden.push_back(g / (1 + std::exp(-1.3 * g)) * (u + 1));
    }
  CHECK(clamped > 20);
  CHECK(clamped < 140);
  CHECK(testing::worst_error(layer(x), layer.linear2(tensor(hidden, {4, 40}))) < 1e-14);
  check_layer(layer, fixed_leaf({2, 3}, 16));
  nn::FeedForward::Options o = layer.options;
  o.gated = false;
  CHECK_THROWS_WITH(nn::FeedForward(o), Containing("accepted: gated, a positive limit"));
  o = layer.options;
  o.clamped->limit = 0;
  CHECK_THROWS_WITH(nn::FeedForward(o), Containing("accepted: gated, a positive limit"));
}

TEST_CASE("gradients of the layers equal finite differences") {
  manual_seed(7);
  nn::Linear linear({.in = 3, .out = 4});
  check_layer(linear, fixed_leaf({2, 3}, 11));
  nn::LayerNorm norm({.dim = 5});
  check_layer(norm, fixed_leaf({3, 5}, 12));
  nn::RMSNorm rms({.dim = 5});
  check_layer(rms, fixed_leaf({3, 5}, 13));
  nn::FeedForward ff({.d_model = 3, .d_hidden = 4, .activation = nn::Activation::gelu_tanh});
  check_layer(ff, fixed_leaf({2, 3}, 14));
  nn::FeedForward gated(
      {.d_model = 3, .d_hidden = 4, .activation = nn::Activation::silu, .gated = true});
  check_layer(gated, fixed_leaf({2, 3}, 15));
}
