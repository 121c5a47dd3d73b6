// Samples of given distributions [ops/create.h: bernoulli, multinomial].
#include <algorithm>
#include <cmath>
#include <set>
#include <vector>

#include "ops/create.h"
#include "ops/elementwise.h"
#include "ops/indexing.h"
#include "ops/reduce.h"
#include "ops/view.h"
#include "tests/support/catch.h"
#include "tests/support/compare.h"
#include "tests/support/error_of.h"

namespace stretto {
namespace {

using testing::same_bits;
constexpr RandomKey key{.seed = 3, .stream = 11};

// Checks that `count` of n samples with probability p are within 6 standard deviations.
void check_frequency(int64_t count, int64_t n, double p) {
  const double deviation = std::sqrt(double(n) * p * (1 - p));
  INFO(count << " of " << n << " samples with probability " << p);
  CHECK(std::fabs(double(count) - double(n) * p) <= 6 * deviation);
}

}  // namespace

TEST_CASE("bernoulli compares the samples of its key with the probabilities", "[ops]") {
  for (DType dtype : {f32, f64, bf16}) {
    const Tensor p = linspace(0, 1, 1000, {.dtype = f64}).to(dtype);
    const Tensor y = bernoulli(p, key), u = rand({1000}, key);
    CHECK(y.dtype() == dtype);
    CHECK(same_bits(y, lt(u.to(f64), p.to(f64)).to(dtype)));
  }
  CHECK(sum(bernoulli(zeros({500}))).item() == 0);
  CHECK(sum(bernoulli(ones({500}))).item() == 500);
  const int64_t n = 100'000;
  check_frequency(sum(bernoulli(full({n}, 0.3), key)).item<int64_t>(), n, 0.3);
  manual_seed(5);
  const Tensor first = bernoulli(full({50}, 0.5)), second = bernoulli(full({50}, 0.5));
  CHECK(!equal(first, second));
  manual_seed(5);
  CHECK(equal(bernoulli(full({50}, 0.5)), first));
  CHECK_THROWS_WITH(bernoulli(arange(2)),
                    Containing("[bernoulli] got i64 [2]; accepted: f32, f64"));
  for (const double p : {1.5, -0.5, double(INFINITY), double(NAN)})
    CHECK_THROWS_WITH(bernoulli(tensor<double>({0.5, p, 1})),
                      Containing(str("[bernoulli] probability ", p, "; accepted: 0 to 1")));
}

TEST_CASE("multinomial with replacement has the frequencies of its weights", "[ops]") {
  const Tensor weights = tensor(std::vector<float>{1, 0, 3, 4, 0, 0, 2, 0}, {2, 4});
  const int64_t n = 50'000;
  const Tensor ids = multinomial(weights, n, true, key);
  CHECK(ids.shape() == Shape{2, n});
  const std::vector<std::vector<double>> p = {{0.125, 0, 0.375, 0.5}, {0, 0, 1, 0}};
  for (int64_t r : {0, 1}) {
    const auto counts = bincount(ids[r], {}, 4).to_vector<int64_t>();
    for (size_t v = 0; v < 4; ++v) check_frequency(counts[v], n, p[size_t(r)][v]);
  }
  CHECK(same_bits(multinomial(weights, n, true, key), ids));
  CHECK(same_bits(multinomial(weights.to(f64) * 8.0, n, true, key), ids));
  const Tensor rows = multinomial(ones({2, 1000}), 8, true, key);
  CHECK_FALSE(same_bits(rows[0], rows[1]));  // each row has its own random numbers
}

TEST_CASE("multinomial without replacement gives different ids", "[ops]") {
  const Tensor weights = tensor(std::vector<float>{1, 0, 3, 4}, {4}).expand({20'000, 4});
  const auto ids = multinomial(weights, 2, false, key).to_vector<int64_t>();
  int64_t first[4] = {}, pairs = 0;
  for (size_t r = 0; r < ids.size(); r += 2) {
    CHECK_FALSE(ids[r] == ids[r + 1]);
    ++first[ids[r]];
    pairs += ids[r] == 3 && ids[r + 1] == 2;
  }
  for (size_t v = 0; v < 4; ++v)
    check_frequency(first[v], 20'000, std::vector{1, 0, 3, 4}[v] / 8.0);
  check_frequency(pairs, 20'000, 0.5 * 3 / 4);  // 3, then 2 among 1 and 3
  const auto all = multinomial(ones({5}), 5, false, key).to_vector<int64_t>();
  CHECK(std::set<int64_t>(all.begin(), all.end()).size() == 5);
  CHECK(multinomial(ones({3, 5}), 0).shape() == Shape{3, 0});
  CHECK(multinomial(ones({0, 5}), 2).shape() == Shape{0, 2});
}

TEST_CASE("multinomial refuses weights that are no distribution", "[ops]") {
  const auto error = [](const Tensor& weights, int64_t n, bool replacement = true) {
    return testing::error_of<Error>([&] { multinomial(weights, n, replacement); });
  };
  CHECK(error(tensor<float>({1, -1}), 1) ==
        "[multinomial] weight -1 in row 0; accepted: finite numbers of at least 0");
  CHECK_THAT(error(tensor<float>({1, NAN}), 1), Containing("[multinomial] weight nan in row 0"));
  CHECK_THAT(error(tensor<float>({1, INFINITY}), 1),
             Containing("[multinomial] weight inf in row 0"));
  CHECK_THAT(error(zeros({2}), 1), Containing("the weights of row 0 have the sum 0"));
  CHECK(error(tensor<float>({1, 0, 1}), 3, false) ==
        "[multinomial] 3 samples without replacement of 2 weights that are not 0");
  CHECK_THAT(error(ones({}), 1), Containing("must have at least 1 dimension"));
  CHECK_THAT(error(ones({2, 0}), 1), Containing("has no weights"));
  CHECK_THAT(error(ones({2}), -1), Containing("[multinomial] -1 samples; must not be negative"));
  CHECK_THAT(error(arange(2), 1),
             Containing("[multinomial] got i64 [2]; accepted: f32, f64, bf16"));
}

}  // namespace stretto
