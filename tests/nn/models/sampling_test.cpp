#include "nn/models/sampling.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "nn/data/draws.h"
#include "ops/create.h"
#include "tests/support/catch.h"

using namespace stretto;
using nn::sample;
using nn::Sampler;
using nn::SamplingOptions;

namespace {

using Tokens = std::vector<int64_t>;
using Numbers = std::vector<double>;

constexpr double infinity = std::numeric_limits<double>::infinity();

// The logits after the penalties, and −∞ for forbidden tokens.
Numbers penalized(Numbers x, const SamplingOptions& o, const Tokens& prompt, const Tokens& tokens) {
  for (size_t v = 0; v < x.size(); ++v) {
    const auto in = [&](const Tokens& list) { return std::count(list.begin(), list.end(), v); };
    const auto count = double(in(tokens));
    if (in(prompt) > 0 || count > 0)
      x[v] = x[v] < 0 ? x[v] * o.repetition_penalty : x[v] / o.repetition_penalty;
    if (count > 0) x[v] -= o.presence_penalty + o.frequency_penalty * count;
    if (in(o.forbidden) > 0) x[v] = -infinity;
  }
  return x;
}

// The tokens, most probable first, and their weights, by sorting everything.
std::pair<Tokens, Numbers> weights(const Numbers& x, const SamplingOptions& o) {
  Tokens order(x.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](int64_t a, int64_t b) { return x[size_t(a)] > x[size_t(b)]; });
  if (o.top_k > 0 && o.top_k < int64_t(order.size())) order.resize(size_t(o.top_k));
  Numbers weight;
  double total = 0, sum = 0;
  for (const int64_t t : order) {
    weight.push_back(std::exp((x[size_t(t)] - x[size_t(order[0])]) / o.temperature));
    total += weight.back();
  }
  size_t n = 0;
  while (o.top_p < 1 && n < weight.size() && sum < o.top_p * total) sum += weight[n++];
  if (o.top_p < 1) weight.resize(n);
  while (weight.back() < o.min_p) weight.pop_back();
  return {order, weight};
}

int64_t chosen(const Numbers& x, const SamplingOptions& o, double draw) {
  if (o.temperature == 0) return std::max_element(x.begin(), x.end()) - x.begin();
  const auto [order, weight] = weights(x, o);
  double rest = draw * std::accumulate(weight.begin(), weight.end(), 0.0);
  size_t last = 0;
  for (size_t i = 0; i < weight.size() && weight[i] > 0; ++i) {
    rest -= weight[last = i];
    if (rest < 0) break;
  }
  return order[last];
}

}  // namespace

TEST_CASE("Sampler: random options give the token that sorting everything gives, bit for bit") {
  int64_t ties = 0;
  for (int64_t round = 0; round < 3000; ++round) {
    nn::Draws d(21, round);
    const int64_t vocabulary = 1 + d.below(round % 50 == 0 ? 5000 : 40);
    const int64_t values = 1 + d.below(round % 3 == 0 ? 8 : 100000);  // few values: ties
    Numbers x;
    for (int64_t i = 0; i < vocabulary; ++i)
      x.push_back(double(d.below(2 * values) - values) * 10 / double(values));
    SamplingOptions o;
    const auto maybe = [&](double value) { return d.below(2) == 0 ? value : 0; };
    o.temperature = d.below(8) == 0 ? 0 : 0.1 + double(d.below(30)) / 10;
    o.top_k = int64_t(maybe(double(1 + d.below(vocabulary + 2))));
    o.top_p = 1 - maybe(double(d.below(100)) / 100);
    o.min_p = maybe(double(d.below(101)) / 100);
    o.repetition_penalty = 1 + maybe(double(d.below(20)) / 10 - 0.5);
    o.presence_penalty = maybe(double(d.below(40)) / 10 - 2);
    o.frequency_penalty = maybe(double(d.below(40)) / 10 - 2);
    for (int64_t i = d.below(3); i > 0 && vocabulary > 3; --i)
      o.forbidden.push_back(d.below(vocabulary));
    Tokens prompt, tokens;
    for (int64_t i = d.below(5); i > 0; --i) prompt.push_back(d.below(vocabulary));
    for (int64_t i = d.below(9); i > 0; --i) tokens.push_back(d.below(vocabulary));
    Sampler sampler(o, prompt);
    for (const int64_t token : tokens) sampler.append(token);
    const Numbers expected = penalized(x, o, prompt, tokens);
    const double draw = double(d.below(1 << 20)) / (1 << 20);
    INFO("round " << round << ", draw " << draw);
    const int64_t token = sampler(tensor(x, {vocabulary}), draw);
    REQUIRE(token == chosen(expected, o, draw));
    ties += values < 9;
    REQUIRE(sampler.tokens().back() == token);
    REQUIRE(sampler.tokens().size() == prompt.size() + tokens.size() + 1);
  }
  CHECK(ties > 500);
}

TEST_CASE("Sampler: a large vocabulary is sorted like a small one") {
  nn::Draws d(22, 0);
  Numbers x;
  for (int64_t i = 0; i < 50257; ++i) x.push_back(double(d.below(1 << 30)) / (1 << 26) - 8);
  for (int64_t i = 0; i < 50257; i += 7) x[size_t(i)] = i % 2 == 0 ? 0.0 : -0.0;
  x[3] = -infinity;
  const Tensor logits = tensor(x, {50257});
  for (const SamplingOptions& o :
       {SamplingOptions{}, SamplingOptions{.top_p = 0.99}, SamplingOptions{.top_k = 300},
        SamplingOptions{.temperature = 0.5, .min_p = 0.01}, SamplingOptions{.temperature = 0}})
    for (int64_t i = 0; i < 20; ++i) {
      const double draw = (double(i) + 0.5) / 20;
      CHECK(sample(logits, o, draw) == chosen(x, o, draw));
    }
}

TEST_CASE("Sampler: penalties have their formulas") {
  const Tensor x = tensor<double>({1, -1, 2, 0});
  const auto seen = [&](SamplingOptions o, const Tokens& prompt, const Tokens& tokens) {
    Numbers logits;
    o.temperature = 0;
    o.constrain = [&](std::span<double> l, const Tokens&) { logits.assign(l.begin(), l.end()); };
    Sampler sampler(o, prompt);
    for (const int64_t token : tokens) sampler.append(token);
    sampler(x, 0);
    return logits;
  };
  CHECK(seen({}, {0, 1}, {2}) == Numbers{1, -1, 2, 0});
  CHECK(seen({.repetition_penalty = 2}, {0, 1, 1}, {2, 2}) == Numbers{0.5, -2, 1, 0});
  CHECK(seen({.presence_penalty = 0.5}, {0}, {2, 2, 1}) == Numbers{1, -1.5, 1.5, 0});
  CHECK(seen({.frequency_penalty = 0.5}, {0}, {2, 2, 1}) == Numbers{1, -1.5, 1, 0});
  CHECK(seen({.repetition_penalty = 2, .presence_penalty = 1, .frequency_penalty = 0.25}, {0},
             {2, 2}) == Numbers{0.5, -1, -0.5, 0});
  CHECK(seen({.forbidden = {3, 9, -1, 3}}, {}, {}) == Numbers{1, -1, 2, -infinity});
  CHECK(seen({.repetition_penalty = 2}, {-5, 77}, {}) == Numbers{1, -1, 2, 0});
}

TEST_CASE("Sampler: min_p keeps tokens by their share of the largest probability") {
  const Tensor x = tensor<double>({std::log(0.4), std::log(0.2), std::log(0.3), std::log(0.1)});
  const auto possible = [&](const SamplingOptions& o) {
    Tokens found;
    for (int64_t i = 0; i < 1000; ++i) {
      const int64_t token = sample(x, o, (double(i) + 0.5) / 1000);
      if (std::find(found.begin(), found.end(), token) == found.end()) found.push_back(token);
    }
    return found;
  };
  CHECK(possible({}) == Tokens{0, 2, 1, 3});
  CHECK(possible({.min_p = 0.24}) == Tokens{0, 2, 1, 3});
  CHECK(possible({.min_p = 0.26}) == Tokens{0, 2, 1});
  CHECK(possible({.min_p = 0.7}) == Tokens{0, 2});
  CHECK(possible({.min_p = 1}) == Tokens{0});
  CHECK(possible({.temperature = 2, .min_p = 0.7}) == Tokens{0, 2, 1});  // √0.5 > 0.7
  CHECK(possible({.top_k = 2, .min_p = 0.26}) == Tokens{0, 2});
  CHECK(possible({.top_p = 0.6, .min_p = 0.26}) == Tokens{0, 2});
  // Shares after min_p.
  CHECK(sample(x, {.min_p = 0.7}, 0.57) == 0);
  CHECK(sample(x, {.min_p = 0.7}, 0.58) == 2);
}

TEST_CASE("Sampler: constrain sees the sequence and decides") {
  std::vector<Tokens> sequences;
  const SamplingOptions o{.temperature = 0,
                          .forbidden = {1},
                          .constrain = [&](std::span<double> logits, const Tokens& tokens) {
                            sequences.push_back(tokens);
                            REQUIRE(logits.size() == 4);
                            CHECK(logits[1] == -infinity);
                            logits[size_t(tokens.back())] = -infinity;  // never twice in a row
                          }};
  Sampler sampler(o, {0});
  const Tensor x = tensor<float>({5, 9, 3, 4});
  CHECK(sampler(x, 0) == 3);
  CHECK(sampler(x, 0) == 0);
  CHECK(sampler(x, 0) == 3);
  CHECK(sequences == std::vector<Tokens>{{0}, {0, 3}, {0, 3, 0}});
  CHECK(sampler.tokens() == Tokens{0, 3, 0, 3});
  const auto with = [&](double value) {
    return SamplingOptions{.constrain = [=](std::span<double> logits, const Tokens&) {
      std::fill(logits.begin(), logits.end(), value);
    }};
  };
  CHECK_THROWS_WITH(sample(x, with(NAN), 0),
                    "[sample] the logits after SamplingOptions::constrain contain NaN");
  CHECK_THROWS_WITH(sample(x, with(-infinity), 0),
                    "[sample] the largest logit is -inf; must be finite");
}

TEST_CASE("Sampler: errors of the options") {
  const auto refused = [](const SamplingOptions& o, const std::string& text) {
    CHECK_THROWS_WITH(Sampler(o), Containing(text));
  };
  for (const double p : {-0.1, 1.1, double(NAN)})
    refused({.min_p = p}, str("[sample] min_p ", p, "; must be 0 (none) to 1"));
  for (const double r : {0.0, -1.0, double(NAN), infinity})
    refused({.repetition_penalty = r}, "; must be above 0, 1 for none");
  refused({.presence_penalty = NAN}, "[sample] presence_penalty nan, frequency_penalty 0;");
  refused({.frequency_penalty = infinity}, "frequency_penalty inf; must be finite");
}
