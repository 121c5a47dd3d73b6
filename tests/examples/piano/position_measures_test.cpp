#include "examples/piano/position_measures.h"

#include <cmath>

#include "ops/create.h"
#include "ops/elementwise.h"
#include "ops/reduce.h"
#include "ops/view.h"
#include "tests/support/catch.h"
#include "tests/support/compare.h"
#include "tests/support/gradcheck.h"

using namespace stretto;
using stretto::examples::AttentionRange;
using stretto::examples::monotonicity;
using stretto::examples::translation_invariance;
using testing::fixed_noise;
using testing::worst_error;

namespace {

Tensor matrix(int64_t l, const std::function<double(int64_t, int64_t)>& at) {
  std::vector<double> numbers;
  for (int64_t i = 0; i < l; ++i)
    for (int64_t j = 0; j < l; ++j) numbers.push_back(at(i, j));
  return tensor(numbers, {l, l});
}

double variance(const std::vector<double>& x) {
  double mean = 0, sum = 0;
  for (const double v : x) mean += v / double(x.size());
  for (const double v : x) sum += (v - mean) * (v - mean);
  return sum / double(x.size());
}

struct Measures {
  double invariance, monotonicity;
};

// Both measures by their definitions, over all distances and all pairs.
Measures by_definition(const Tensor& a, int64_t first, int64_t last, int64_t max_distance) {
  std::vector<double> all;
  double within = 0, inversions = 0, pairs = 0;
  for (int64_t distance = 0; distance <= max_distance; ++distance) {
    std::vector<double> diagonal;
    for (int64_t q = first; q < last; ++q)
      if (q >= distance) diagonal.push_back(a[q][q - distance].item());
    if (!diagonal.empty()) within += variance(diagonal) * double(diagonal.size());
    all.insert(all.end(), diagonal.begin(), diagonal.end());
  }
  for (int64_t q = first; q < last; ++q)
    for (int64_t i = std::max<int64_t>(0, q - max_distance); i <= q; ++i)
      for (int64_t j = i + 1; j <= q; ++j) {
        pairs += 1;
        inversions += a[q][i].item() > a[q][j].item() ? 1 : 0;
      }
  return {within / double(all.size()) / variance(all), inversions / pairs};
}

}  // namespace

TEST_CASE("translation_invariance of small examples agrees with hand calculations") {
  const Tensor toeplitz = matrix(9, [](int64_t i, int64_t j) { return std::cos(double(i - j)); });
  CHECK(translation_invariance(toeplitz).item() == 0);
  CHECK(translation_invariance(full({5, 5}, 3, {.dtype = f64})).item() == 0);
  CHECK(translation_invariance(ones({1, 1})).item() == 0);
  // Two diagonals with elements ±1: the distance explains nothing of the variance.
  const Tensor signs = matrix(5, [](int64_t i, int64_t) { return i % 2 == 0 ? 1 : -1; });
  CHECK(translation_invariance(signs, {.first = 1, .max_distance = 1}).item() ==
        Approx(1).epsilon(1e-14));
  // The upper triangle, which causal attention masks, is ignored.
  const Tensor causal = matrix(9, [](int64_t i, int64_t j) { return j > i ? i * j : i - j; });
  CHECK(translation_invariance(causal).item() == 0);
}

TEST_CASE("monotonicity of small examples agrees with hand calculations") {
  const Tensor rising = matrix(7, [](int64_t i, int64_t j) { return double(i + j); });
  const Tensor falling = matrix(7, [](int64_t i, int64_t j) { return double(i - j); });
  CHECK(monotonicity(rising).item() == 0);
  CHECK(monotonicity(falling).item() == 1);
  CHECK(monotonicity(ones({7, 7})).item() == 0);  // equal elements are not larger
  // Row 2 is 1 3 2: one of three pairs is an inversion. Row 1 is 5 4.
  const Tensor some = tensor(std::vector<double>{0, 9, 9, 5, 4, 9, 1, 3, 2}, {3, 3});
  CHECK(monotonicity(some, {.first = 2}).item() == Approx(1.0 / 3));
  CHECK(monotonicity(some).item() == Approx(2.0 / 4));
  CHECK(monotonicity(some, {.max_distance = 1}).item() == Approx(2.0 / 2));
  CHECK(std::isnan(monotonicity(some, {.last = 1}).item()));
  CHECK(std::isnan(monotonicity(some, {.max_distance = 0}).item()));
}

TEST_CASE("position measures agree with their definitions") {
  const int64_t l = 41;
  const Tensor a = fixed_noise({3, l, l}, 1);
  const Tensor rounded = matrix(l, [](int64_t i, int64_t j) { return double((i * j) % 5); });
  for (const AttentionRange& range : {AttentionRange{},
                                      {.first = 7, .last = 30},
                                      {.first = 3, .last = 41, .max_distance = 12},
                                      {.max_distance = 1},
                                      {.first = 40},
                                      {.last = 10, .max_distance = 100}}) {
    const int64_t last = range.last == 0 ? l : range.last;
    const int64_t distance =
        range.max_distance < 0 ? last - 1 : std::min(range.max_distance, last - 1);
    const Tensor invariance = translation_invariance(a, range), monotone = monotonicity(a, range);
    CHECK(invariance.shape() == Shape{3});
    CHECK(monotone.dtype() == f64);
    for (int64_t h = 0; h < 3; ++h) {
      const Measures want = by_definition(a[h], range.first, last, distance);
      CHECK(invariance[h].item() == Approx(want.invariance).margin(1e-13));
      CHECK(monotone[h].item() == Approx(want.monotonicity).epsilon(1e-14));
      CHECK(translation_invariance(a[h], range).item() == invariance[h].item());
      CHECK(translation_invariance(a[h], range).dim() == 0);
    }
    CHECK(monotonicity(rounded, range).item() ==
          Approx(by_definition(rounded, range.first, last, distance).monotonicity).epsilon(1e-14));
  }
  // The same for strided and for f32 inputs.
  const Tensor transposed = a.transpose(1, 2).contiguous().transpose(1, 2);
  CHECK(testing::same_bits(monotonicity(transposed), monotonicity(a)));
  CHECK(monotonicity(rounded.to(f32)).item() == monotonicity(rounded).item());
}

TEST_CASE("translation_invariance is accurate for small differences and a large mean") {
  const Tensor a = fixed_noise({30, 30}, 1);
  CHECK(translation_invariance(a + 1e6).item() ==
        Approx(translation_invariance(a).item()).epsilon(1e-6));
}

TEST_CASE("identical_token_attention is the mean of exp(scores), up to a factor") {
  const int64_t l = 7, tokens = 5;
  std::vector<Tensor> scores;
  for (int64_t t = 0; t < tokens; ++t) scores.push_back(fixed_noise({1, 2, l, l}, uint64_t(t)));
  int64_t calls = 0;
  const auto of_token = [&](double offset) {
    return stretto::examples::identical_token_attention(
        [&](const Tensor& x) {
          CHECK(x.shape() == Shape{1, l});
          CHECK(x.to_vector<int64_t>() == std::vector<int64_t>(size_t(l), calls % tokens));
          return scores[size_t(calls++ % tokens)] + offset;
        },
        tokens, l);
  };
  Tensor mean = zeros({2, l, l}, {.dtype = f64});
  for (const Tensor& s : scores) mean = mean + exp(s[0]) / double(tokens);
  // Also for scores at which exp overflows or underflows.
  for (const double offset : {0.0, 2000.0, -2000.0}) {
    const Tensor a = of_token(offset).to(default_device());
    REQUIRE(a.shape() == mean.shape());
    for (int64_t h = 0; h < 2; ++h) {
      const Tensor ratio = a[h] / mean[h];
      CHECK(max(ratio).item() == Approx(min(ratio).item()).epsilon(1e-11));
    }
    CHECK(worst_error(translation_invariance(a), translation_invariance(mean)) < 1e-11);
    CHECK(testing::same_bits(monotonicity(a), monotonicity(mean)));
  }
  CHECK(calls == 3 * tokens);
}

TEST_CASE("identical_token_attention gives 0 for masked scores and NaN for NaN") {
  constexpr double never = -std::numeric_limits<double>::infinity();
  const auto measured = [](double upper, double lower) {
    return stretto::examples::identical_token_attention(
        [&](const Tensor&) {
          return tensor(std::vector<double>{0, upper, lower, 0}, {1, 1, 2, 2});
        },
        3, 2);
  };
  CHECK(measured(never, 1)[0][0].to_vector<double>() == std::vector<double>{std::exp(-1.0), 0});
  CHECK(std::isnan(measured(never, std::nan(""))[0][1][0].item()));
  // All scores of the first token are masked.
  int64_t calls = 0;
  const Tensor a = stretto::examples::identical_token_attention(
      [&](const Tensor&) {
        return full({1, 1, 1, 1}, calls++ == 0 ? never : 2.0);
      },
      2, 1);
  CHECK(a.item() == 0.5);
}

TEST_CASE("identical_token_attention rejects invalid arguments") {
  const DefaultDevice host(cpu);  // the scores are checked on the CPU
  const auto with = [](const Tensor& scores, int64_t vocabulary, int64_t length) {
    return stretto::examples::identical_token_attention([&](const Tensor&) { return scores; },
                                                        vocabulary, length);
  };
  CHECK_THROWS_WITH(with({}, 0, 3),
                    "[identical_token_attention] vocabulary 0, length 3; both must be at least 1");
  CHECK_THROWS_WITH(with({}, 2, 0), Containing("vocabulary 2, length 0"));
  CHECK_THROWS_WITH(with(zeros({1, 2, 3, 4}), 2, 3),
                    "[identical_token_attention] scores f32 [1, 2, 3, 4] for tokens [1, 3]; must "
                    "have a floating-point dtype and shape [1, H, 3, 3]");
  CHECK_THROWS_WITH(with(zeros({3, 3}), 2, 3), Containing("scores f32 [3, 3]"));
  CHECK_THROWS_WITH(with(zeros({1, 1, 3, 3}, {.dtype = i64}), 2, 3), Containing("scores i64"));
}

TEST_CASE("position measures reject invalid arguments") {
  CHECK_THROWS_WITH(monotonicity(zeros({3, 4})),
                    "[monotonicity] attention f32 [3, 4]; must have a floating-point dtype and "
                    "shape [L, L] or [H, L, L]");
  CHECK_THROWS_WITH(translation_invariance(zeros({4}, {.dtype = i64})),
                    Containing("[translation_invariance] attention i64 [4]"));
  const Tensor a = zeros({4, 4});
  CHECK_THROWS_WITH(
      monotonicity(a, {.last = 5}),
      "[monotonicity] rows 0 to 5 and distances up to -1 of 4 positions; accepted: 0 ≤ "
      "first < last ≤ 4, max_distance −1 for all or 0 and more");
  CHECK_THROWS_WITH(monotonicity(a, {.first = 4}), Containing("rows 4 to 4"));
  CHECK_THROWS_WITH(monotonicity(a, {.first = -1}), Containing("rows -1 to 4"));
  CHECK_THROWS_WITH(monotonicity(a, {.max_distance = -2}), Containing("distances up to -2"));
  CHECK_THROWS_WITH(monotonicity(zeros({0, 0})), Containing("of 0 positions"));
}
