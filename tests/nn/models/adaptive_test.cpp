#include "nn/models/adaptive.h"

#include <cmath>

#include "nn/init.h"
#include "nn/models/input_embedding.h"
#include "ops/create.h"
#include "ops/elementwise.h"
#include "ops/indexing.h"
#include "ops/reduce.h"
#include "tests/reference/adaptive.h"
#include "tests/support/catch.h"
#include "tests/support/compare.h"
#include "tests/support/gradcheck.h"
#include "tests/support/stand_in.h"

using namespace stretto;
using nn::AdaptiveCluster;
using nn::AdaptiveOptions;
using nn::AdaptiveSoftmax;
using nn::AdaptiveTables;
using nn::InputEmbedding;
using reference::nll_by_loops;
using testing::fixed_leaf;
using testing::fixed_noise;
using testing::same_bits;
using testing::worst_error;

namespace {

struct Parent : nn::Module {};

// V = 11 in {0 … 3}, {4 … 6}, {7 … 10}; widths 6, 3, 1 with div 2.
AdaptiveOptions some(int64_t div, int64_t d_model = 6) {
  return {.vocabulary = 11, .d_model = d_model, .d_embedding = 6, .cutoffs = {4, 7}, .div = div};
}

Tensor every_word() { return tensor<int64_t>({9, 0, 4, 3, 7, 7, 10, 1, 6, 2, 5, 8, 0}); }

// An embedding and an output layer of noise.
struct Made : Parent {
  InputEmbedding input;
  const AdaptiveTables& embedding = input.tables;
  AdaptiveSoftmax softmax;
  Made(const AdaptiveOptions& o, bool tied, const std::vector<bool>& projections = {})
      : input(*this, "embedding",
              {.vocabulary = o.vocabulary, .d_model = o.d_model, .adaptive = o}),
        softmax(*this, "output", {o, tied, projections}, &embedding) {
    to(f64);
    uint64_t stream = 1;
    for (const nn::NamedTensor& p : named_parameters())
      p.tensor.detach().copy_(fixed_noise(p.tensor.shape(), stream++));
  }
};

}  // namespace

TEST_CASE("AdaptiveOptions: clusters, widths and errors") {
  const AdaptiveOptions o{.vocabulary = 267'735,
                          .d_model = 1024,
                          .d_embedding = 1024,
                          .cutoffs = {20'000, 40'000, 200'000},
                          .div = 4};
  CHECK(o.n_clusters() == 4);
  CHECK(o.first(0) == 0);
  CHECK(o.last(0) == 20'000);
  CHECK(o.first(3) == 200'000);
  CHECK(o.last(3) == 267'735);
  CHECK(o.width(0) == 1024);
  CHECK(o.width(3) == 16);
  CHECK(o.n_tables() == 4);
  CHECK(some(1).n_tables() == 1);
  CHECK(some(1).width(2) == 6);
  CHECK(some(2).width(2) == 1);  // ⌊6 / 4⌋

  auto with = [](std::vector<int64_t> cutoffs) {
    AdaptiveOptions bad = some(1);
    bad.cutoffs = std::move(cutoffs);
    return AdaptiveTables(bad).weights[0].numel();
  };
  CHECK(with({1, 10}) == 66);
  CHECK_THROWS_WITH(with({7, 4}),
                    "[AdaptiveOptions] cutoffs must rise strictly and lie between 0 and the "
                    "vocabulary, 11; cutoff 1 is 4 after 7");
  CHECK_THROWS_WITH(with({4, 4}), Containing("cutoff 1 is 4 after 4"));
  CHECK_THROWS_WITH(with({0, 4}), Containing("cutoff 0 is 0"));
  CHECK_THROWS_WITH(with({4, 11}), Containing("cutoff 1 is 11 after 4"));
  CHECK_THROWS_WITH(AdaptiveTables(some(3)),
                    Containing("with d_embedding 6 and div 3 cluster 2 has width 0"));
  CHECK_THROWS_WITH(AdaptiveTables(AdaptiveOptions{}), Containing("vocabulary 0, d_model 0"));
}

TEST_CASE("InputEmbedding with clusters: names and shapes") {
  auto listed = [](const AdaptiveOptions& o) {
    std::string all;
    for (const auto& [name, p] : Made(o, false).input.named_parameters())
      all += str(name, p.shape(), ' ');
    return all;
  };
  CHECK(listed(some(1)) == "weight0[11, 6] ");
  CHECK(listed(some(1, 8)) == "weight0[11, 6] projection0[8, 6] ");
  CHECK(listed(some(2)) ==
        "weight0[4, 6] projection0[6, 6] weight1[3, 3] projection1[6, 3] "
        "weight2[4, 1] projection2[6, 1] ");
  AdaptiveOptions o = some(1);
  o.d_embedding = 0;
  o.cutoffs = {};
  CHECK(listed(o) == "weight0[11, 6] ");
  CHECK(Made(o, false).input.label() == "InputEmbedding(11 tokens)");
  CHECK(Made(some(2), false).input.label() == "InputEmbedding(11 tokens, 3 clusters)");
}

TEST_CASE("AdaptiveTables: each word comes from its cluster's table, through its projection") {
  for (const int64_t div : {1, 2})
    for (const int64_t d_model : {6, 8}) {
      const AdaptiveOptions o = some(div, d_model);
      const Made made(o, false);
      const Tensor x = made.embedding(every_word().slice(0, 0, 12).reshape({2, 6}));
      REQUIRE(x.shape() == Shape{2, 6, d_model});
      const auto words = every_word().to_vector<int64_t>();
      for (size_t n = 0; n < 12; ++n) {
        int64_t i = 0;
        while (words[n] >= o.last(i)) ++i;
        const auto table = size_t(div == 1 ? 0 : i);
        const int64_t row = div == 1 ? words[n] : words[n] - o.first(i);
        const auto e = made.embedding.weights[table][row].to_vector<double>();
        auto expected = e;
        if (o.projected()) {
          const auto p = made.embedding.projections[table].to_vector<double>();
          expected.assign(size_t(d_model), 0);
          for (size_t d = 0; d < expected.size(); ++d)
            for (size_t k = 0; k < e.size(); ++k) expected[d] += p[d * e.size() + k] * e[k];
        }
        CHECK(worst_error(x.reshape({12, d_model})[int64_t(n)], tensor(expected, {d_model})) <
              1e-14);
      }
      CHECK(same_bits(made.embedding(every_word().to(i32)), made.embedding(every_word())));
      CHECK(made.embedding(zeros({3, 0}, {.dtype = i64})).shape() == Shape{3, 0, d_model});
      for (const int64_t bad : {-1, 11})
        CHECK_THROWS_WITH(made.embedding(tensor<int64_t>({3, bad})).to_vector<double>(),
                          Containing(str(bad)));
    }
  CHECK_THROWS_WITH(Made(some(2), false).embedding(tensor<int64_t>({3, 12})).to_vector<double>(),
                    "[AdaptiveTables] index 12 at position [1] is out of range: the vocabulary "
                    "has 11 words");
  CHECK_THROWS_WITH(Made(some(2), false).embedding(zeros({2})),
                    "[AdaptiveTables] indices are f32; accepted: i64, i32");
}

TEST_CASE("AdaptiveTables: gradients") {
  const int64_t div = GENERATE(1, 2);
  Made made(some(div, 8), false);
  Tensors leaves;
  const size_t tables = made.embedding.weights.size();
  for (const Tensor& w : made.embedding.weights) leaves.push_back(fixed_leaf(w.shape(), 1));
  for (const Tensor& p : made.embedding.projections) leaves.push_back(fixed_leaf(p.shape(), 2));
  testing::check_gradients(
      [&](const Tensors& x) {
        for (size_t i = 0; i < tables; ++i) {
          testing::stand_in(x[i], made.embedding.weights[i]);
          testing::stand_in(x[tables + i], made.embedding.projections[i]);
        }
        return made.embedding(every_word());
      },
      leaves);
}

TEST_CASE("AdaptiveSoftmax: names, shapes and tying") {
  const Made free(some(2), false);
  std::string all;
  for (const auto& [name, p] : free.softmax.named_parameters()) all += str(name, p.shape(), ' ');
  CHECK(all ==
        "weight0[4, 6] weight1[3, 3] weight2[4, 1] bias[11] cluster_weight[2, 6] cluster_bias[2] "
        "projection0[6, 6] projection1[6, 3] projection2[6, 1] ");
  CHECK(free.softmax.label() == "AdaptiveSoftmax(11 words, 3 clusters)");

  const Made tied(some(2), true, {false, true, true});
  CHECK(tied.softmax.weights[1].same(tied.embedding.weights[1]));
  CHECK_FALSE(tied.softmax.projections[0].same(tied.embedding.projections[0]));
  CHECK(tied.softmax.projections[1].same(tied.embedding.projections[1]));
  CHECK(tied.parameter_count() == free.parameter_count() - (24 + 9 + 4) - (18 + 6));
  CHECK(tied.softmax.label() == "AdaptiveSoftmax(11 words, 3 clusters, tied)");

  // One table, but a projection per cluster; each may be the only one of the embedding.
  const Made one(some(1, 8), true, {false, true, false});
  CHECK(one.softmax.projections.size() == 3);
  CHECK(one.softmax.projections[1].same(one.embedding.projections[0]));
  CHECK_FALSE(one.softmax.projections[2].same(one.embedding.projections[0]));
  CHECK(one.softmax.bias.shape() == Shape{11});
  CHECK(Made(some(1), true).softmax.projections.empty());

  CHECK_THROWS_WITH(AdaptiveSoftmax({some(2), true}),
                    "[AdaptiveSoftmax] the softmax is tied, but no embedding is given; pass the "
                    "embedding whose parameters it shares");
  CHECK_THROWS_WITH(AdaptiveSoftmax({some(2), false, {false, true, false}}),
                    Containing("the softmax is tied, but no embedding is given"));
  CHECK_THROWS_WITH(Made(some(2), true, {true}),
                    "[AdaptiveSoftmax] tied_projections has 1 entries for 3 clusters");
  Parent parent;
  const AdaptiveTables other(some(1));
  CHECK_THROWS_WITH(AdaptiveSoftmax(parent, "output", {some(2), true}, &other),
                    Containing("differ from those of the embedding"));
}

TEST_CASE("AdaptiveSoftmax is initialized with small tables and biases of 0") {
  manual_seed(3);
  const AdaptiveSoftmax s(AdaptiveSoftmax::Options{
      {.vocabulary = 600, .d_model = 64, .cutoffs = {200, 400}, .div = 2}});
  for (const auto& [name, p] : s.named_parameters()) {
    const double std = name.starts_with("projection") ? 0.01 : 0.02, n = double(p.numel());
    INFO(name);
    if (name.ends_with("bias")) {
      CHECK(same_bits(p, zeros(p.shape())));
    } else {
      CHECK(std::fabs(mean(square(p)).item() / (std * std) - 1) < 4 * std::sqrt(2 / n));
    }
  }
}

TEST_CASE("adaptive softmax: the first cluster's logit is the first column after the shortlist") {
  // Shortlist {0, 1}, clusters {2, 3, 4} and {5}; hidden 0, so that the biases are the logits.
  const std::vector<AdaptiveCluster> clusters{
      {zeros({4, 2}), tensor<float>({0, std::log(2.0f), std::log(3.0f), std::log(4.0f)})},
      {zeros({3, 2}), tensor<float>({0, 0, std::log(2.0f)})},
      {zeros({1, 2}), tensor<float>({5})}};
  const Tensor p = exp(nn::adaptive_log_probabilities(zeros({2}), clusters));
  const Tensor expected = tensor<float>({0.1f, 0.2f, 0.3f / 4, 0.3f / 4, 0.3f / 2, 0.4f});
  CHECK(worst_error(p, expected) < 1e-6);
  const Tensor nll = nn::adaptive_nll(zeros({6, 2}), arange(6), clusters);
  CHECK(worst_error(exp(-nll), expected) < 1e-6);
}

TEST_CASE("AdaptiveSoftmax: losses are those of the definition, in the order of the targets") {
  const Tensor hidden = fixed_noise({13, 6}, 40);
  for (const int64_t div : {1, 2})
    for (const bool tied : {false, true}) {
      const Made made(some(div), tied);
      const auto clusters = made.softmax.clusters();
      const Tensor nll = made.softmax.nll(hidden, every_word());
      REQUIRE(nll.shape() == Shape{13});
      CHECK(worst_error(nll, tensor(nll_by_loops(hidden, every_word(), clusters), {13})) < 1e-13);
      CHECK(same_bits(made.softmax.nll(hidden, every_word().to(i32)), nll));

      const Tensor log_p = made.softmax.log_probabilities(hidden);
      REQUIRE(log_p.shape() == Shape{13, 11});
      CHECK(worst_error(sum(exp(log_p), {1}), ones({13}, {.dtype = f64})) < 1e-13);
      CHECK(worst_error(-gather(log_p, 1, every_word().unsqueeze(1)).squeeze(1), nll) < 1e-13);
    }
}

TEST_CASE("AdaptiveSoftmax without clusters is one output layer, tied or untied") {
  AdaptiveOptions o = some(1, 8);
  o.cutoffs = {};
  const Tensor hidden = fixed_noise({2, 3, 8}, 41);
  const Tensor targets = every_word().slice(0, 0, 6).reshape({2, 3});
  for (const bool tied : {false, true}) {
    const Made made(o, tied, {tied});
    CHECK_FALSE(made.softmax.cluster_weight.defined());
    const Tensor nll = made.softmax.nll(hidden, targets);
    CHECK(nll.shape() == Shape{2, 3});
    const auto expected = nll_by_loops(hidden, targets, made.softmax.clusters());
    CHECK(worst_error(nll, tensor(expected, {2, 3})) < 1e-13);
    CHECK(made.softmax.log_probabilities(hidden).shape() == Shape{2, 3, 11});
    CHECK(made.parameter_count() == (tied ? 66 + 48 + 11 : 2 * (66 + 48) + 11));
  }
}

TEST_CASE("adaptive softmax: a cluster is computed only for its own rows") {
  if (default_device().is_cuda()) STRETTO_SKIP("on a GPU all rows go through all clusters");
  const Made made(some(2), false);
  const Tensor hidden = fixed_leaf({3, 6}, 42);
  const Tensor nll = made.softmax.nll(hidden, tensor<int64_t>({1, 5, 3}));  // none in cluster 2
  sum(nll).backward();
  CHECK_FALSE(made.softmax.weights[2].grad().defined());
  CHECK_FALSE(made.softmax.projections[2].grad().defined());
  REQUIRE(made.softmax.weights[1].grad().defined());
  REQUIRE(made.softmax.bias.grad().defined());
  const auto bias = made.softmax.bias.grad().to_vector<double>();
  for (size_t word = 7; word < 11; ++word) CHECK(bias[word] == 0);
  CHECK(std::fabs(bias[4] + bias[5] + bias[6]) < 1e-15);  // softmax minus one-hot
  CHECK(bias[5] < 0);
}

TEST_CASE("adaptive softmax: gradients") {
  // Widths 4, 2, 1; five words in a shortlist of 2 and clusters of 1 and 2.
  const Tensor targets = tensor<int64_t>({3, 0, 2, 4});
  auto clusters = [](const Tensors& x) {
    return std::vector<AdaptiveCluster>{{x[1], x[2], x[3]}, {x[4], x[5], x[6]}, {x[7], x[8], x[9]}};
  };
  const Tensors leaves{fixed_leaf({4, 4}, 1), fixed_leaf({4, 4}, 2), fixed_leaf({4}, 3),
                       fixed_leaf({4, 4}, 4), fixed_leaf({1, 2}, 5), fixed_leaf({1}, 6),
                       fixed_leaf({4, 2}, 7), fixed_leaf({2, 1}, 8), fixed_leaf({2}, 9),
                       fixed_leaf({4, 1}, 10)};
  testing::check_gradients(
      [&](const Tensors& x) { return nn::adaptive_nll(x[0], targets, clusters(x)); }, leaves,
      false);
  testing::check_gradients(
      [&](const Tensors& x) { return nn::adaptive_log_probabilities(x[0], clusters(x)); }, leaves,
      false);
}

TEST_CASE("adaptive softmax: errors") {
  const Made made(some(2), false);
  const Tensor hidden = fixed_noise({2, 6}, 43);
  for (const int64_t bad : {-1, 11})
    CHECK_THROWS_WITH(made.softmax.nll(hidden, tensor<int64_t>({3, bad})).to_vector<double>(),
                      str("[adaptive_nll] index ", bad,
                          " at position [1] is out of range: the vocabulary has 11 words"));
  CHECK_THROWS_WITH(made.softmax.nll(hidden, zeros({2}, {.dtype = f64})),
                    "[adaptive_nll] indices are f64; accepted: i64, i32");
  CHECK_THROWS_WITH(made.softmax.nll(hidden, tensor<int64_t>({3})),
                    "[adaptive_nll] hidden f64 [2, 6], targets i64 [1]; targets must be [..] for "
                    "hidden [.., D]");
  CHECK_THROWS_WITH(nn::adaptive_nll(hidden, tensor<int64_t>({0, 0}), {}),
                    Containing("needs at least one cluster"));
  const AdaptiveCluster small{zeros({1, 6}), zeros({1})};
  CHECK_THROWS_WITH(nn::adaptive_nll(zeros({1, 6}), tensor<int64_t>({0}), {small, small}),
                    Containing("at least one for its words and one for each of 1 other clusters"));
  CHECK_THROWS_WITH(nn::adaptive_log_probabilities(hidden, {AdaptiveCluster{}}),
                    Containing("a cluster's weight must be [rows, width]"));
}
