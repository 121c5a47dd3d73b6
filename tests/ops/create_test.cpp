#include "ops/create.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>

#include "core/parallel.h"
#include "core/random.h"
#include "tests/support/catch.h"

using namespace stretto;

namespace {

using Values = std::vector<double>;

constexpr DType all_dtypes[] = {f32, f64, bf16, i64, i32, u8, boolean};
constexpr DType floating_dtypes[] = {f32, f64, bf16};

struct Threads {
  int before = num_threads();
  explicit Threads(int n) { set_num_threads(n); }
  ~Threads() { set_num_threads(before); }
};

// Sums of powers of x − center over n samples.
struct Moments {
  double mean[5] = {};
  Moments(const Values& x, double center) {
    for (double v : x)
      for (int p = 1; p <= 4; ++p) mean[p] += std::pow(v - center, p) / double(x.size());
  }
};

}  // namespace

TEST_CASE("zeros, ones, full and scalar in every dtype") {
  for (DType t : all_dtypes) {
    INFO(name(t));
    CHECK(zeros({2, 3}, {.dtype = t}).to_vector<double>() == Values(6, 0));
    CHECK(ones({4}, {.dtype = t}).to_vector<double>() == Values(4, 1));
    CHECK(full({2, 2}, 1, {.dtype = t}).to_vector<double>() == Values(4, 1));
    CHECK(scalar(1, {.dtype = t}).shape() == Shape{});
    CHECK(scalar(1, {.dtype = t}).item() == 1);
    CHECK(zeros_like(ones({2}, {.dtype = t})).dtype() == t);
    CHECK(ones_like(zeros({2}, {.dtype = t})).to_vector<double>() == Values(2, 1));
  }
  CHECK(full({3}, -2.5).to_vector<double>() == Values(3, -2.5));
  CHECK(std::isnan(full({}, NAN).item()));
  CHECK(zeros({0, 3}).numel() == 0);
  CHECK(zeros({}).item() == 0);
}

TEST_CASE("creation with requires_grad gives a leaf") {
  for (const Tensor& x :
       {zeros({2}, {.requires_grad = true}), full({2}, 3, {.requires_grad = true}),
        arange(0, 2, 1, {.requires_grad = true}), eye(2, {.requires_grad = true}),
        linspace(0, 1, 2, {.requires_grad = true}), rand({2}, {.requires_grad = true}),
        randn({2}, {.requires_grad = true}), scalar(1, {.requires_grad = true})}) {
    CHECK(x.requires_grad());
    CHECK(x.is_leaf());
  }
  REQUIRE_THROWS_WITH(zeros({2}, {.dtype = i64, .requires_grad = true}),
                      Containing("only floating-point tensors have gradients"));
}

TEST_CASE("errors of creation ops name the op") {
  REQUIRE_THROWS_WITH(zeros({2, -1}), "[zeros] shape [2, -1] has a negative size");
  REQUIRE_THROWS_WITH(full({-3}, 1), "[full] shape [-3] has a negative size");
  REQUIRE_THROWS_WITH(eye(-1), "[eye] shape [-1, -1] has a negative size");
  REQUIRE_THROWS_WITH(rand({-1}), "[rand] shape [-1] has a negative size");
  REQUIRE_THROWS_WITH(randn({2}, {.dtype = i32}), "[randn] got i32; accepted: f32, f64, bf16");
  REQUIRE_THROWS_WITH(rand({2}, {.dtype = boolean}), "[rand] got bool; accepted: f32, f64, bf16");
}

TEST_CASE("arange counts from start to end") {
  CHECK(arange(4).dtype() == i64);
  CHECK(arange(4).to_vector<int64_t>() == std::vector<int64_t>{0, 1, 2, 3});
  CHECK(arange(0).shape() == Shape{0});
  for (DType t : {f32, f64, bf16, i64, i32, u8})
    CHECK(arange(3, {.dtype = t}).to_vector<double>() == Values{0, 1, 2});
  CHECK(arange(1, 2, 0.25).to_vector<double>() == Values{1, 1.25, 1.5, 1.75});
  CHECK(arange(1, 2).dtype() == i64);
  CHECK(arange(1.0, 2).dtype() == f32);
  CHECK(arange(5, 0, -2).to_vector<double>() == Values{5, 3, 1});
  CHECK(arange(2, 2).numel() == 0);
  CHECK(arange(0, 7, 3, {.dtype = i32}).to_vector<double>() == Values{0, 3, 6});
  // start + i·step in f64, rounded once
  const Values tenths = arange(0, 1000, 0.1).to_vector<double>();
  REQUIRE(tenths.size() == 10000);
  int wrong = 0;
  for (size_t i = 0; i < tenths.size(); ++i) wrong += tenths[i] != float(double(i) * 0.1);
  CHECK(wrong == 0);

  REQUIRE_THROWS_WITH(arange(-1), "[arange] n = -1; must be 0 or more");
  REQUIRE_THROWS_WITH(arange(0, 1, 0),
                      "[arange] start 0, end 1, step 0; the step must not be 0 and must lead from "
                      "start toward end");
  REQUIRE_THROWS_WITH(arange(0, 1, -1), Containing("must lead from start toward end"));
  REQUIRE_THROWS_WITH(arange(0, NAN, 1), Containing("[arange]"));
  REQUIRE_THROWS_WITH(arange(0, 1, 0.5, {.dtype = i64}),
                      "[arange] i64 from 0 with step 0.5; for an integer dtype start and step must "
                      "be whole numbers");
  REQUIRE_THROWS_WITH(arange(2, {.dtype = boolean}),
                      "[arange] got bool; accepted: all other dtypes");
}

TEST_CASE("linspace includes both ends exactly") {
  CHECK(linspace(0, 1, 5).to_vector<double>() == Values{0, 0.25, 0.5, 0.75, 1});
  CHECK(linspace(3, 7, 1).to_vector<double>() == Values{3});
  CHECK(linspace(3, 7, 0).numel() == 0);
  for (int64_t n : {2, 3, 10, 997}) {
    const Values x = linspace(-0.1, 0.7, n, {.dtype = f64}).to_vector<double>();
    CHECK(x.front() == -0.1);
    CHECK(x.back() == 0.7);
    for (size_t i = 0; i < x.size(); ++i)
      REQUIRE(std::fabs(x[i] - (-0.1 + 0.8 * double(i) / double(n - 1))) < 4e-16);
    for (size_t i = 1; i < x.size(); ++i) REQUIRE(x[i] > x[i - 1]);
  }
  REQUIRE_THROWS_WITH(linspace(0, 1, 3, {.dtype = i64}),
                      "[linspace] got i64; accepted: f32, f64, bf16");
  REQUIRE_THROWS_WITH(linspace(0, 1, -3), "[linspace] n = -3; must be 0 or more");
}

TEST_CASE("eye is the identity matrix") {
  CHECK(eye(3).to_vector<double>() == Values{1, 0, 0, 0, 1, 0, 0, 0, 1});
  CHECK(eye(1, {.dtype = boolean}).to_vector<double>() == Values{1});
  CHECK(eye(0).shape() == Shape{0, 0});
}

TEST_CASE("tensor() has the dtype of its values") {
  CHECK(tensor({1.5f, 2.5f}).dtype() == f32);
  CHECK(tensor({1.5, 2.5}).dtype() == f64);
  CHECK(tensor({1, 2}).dtype() == i64);
  CHECK(tensor<int32_t>({1, 2}).dtype() == i32);
  CHECK(tensor({int64_t(1)}).dtype() == i64);
  CHECK(tensor({uint8_t(1)}).dtype() == u8);
  CHECK(tensor({BFloat16(1.5f)}).dtype() == bf16);
  CHECK(tensor({true, false}).dtype() == boolean);
  CHECK(tensor({true, false}).to_vector<double>() == Values{1, 0});
  const Tensor x = tensor(std::vector<float>{1, 2, 3, 4, 5, 6}, {2, 3});
  CHECK(x.shape() == Shape{2, 3});
  CHECK(x.to_vector<double>() == Values{1, 2, 3, 4, 5, 6});
  CHECK(tensor(std::vector<double>{7}, {}).item() == 7);
  CHECK(tensor(std::vector<float>{}, {0, 4}).shape() == Shape{0, 4});
  REQUIRE_THROWS_WITH(tensor(std::vector<float>{1, 2}, {3}),
                      "[tensor] got 2 values for shape [3], which has 3 elements");
}

TEST_CASE("Philox gives Random123's known answers") {
  // philox4x32-10 of kat_vectors, Random123 1.14
  const auto draws = [](RandomKey key, uint64_t block) {
    const Random4 r = philox(key, block);
    return std::vector<uint32_t>(r.v, r.v + 4);
  };
  CHECK(draws({0, 0}, 0) == std::vector<uint32_t>{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8});
  CHECK(draws({UINT64_MAX, UINT64_MAX}, UINT64_MAX) ==
        std::vector<uint32_t>{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd});
  CHECK(draws({.seed = 0x299f31d0a4093822, .stream = 0x0370734413198a2e}, 0x85a308d3243f6a88) ==
        std::vector<uint32_t>{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1});
}

TEST_CASE("element i of rand and randn is sample i of the key") {
  const RandomKey key{.seed = 0x123456789abcdef0, .stream = 0xfedcba9876543210};
  for (int64_t n : {0, 1, 2, 3, 5, 63, 64, 65, 127, 1000, 16384, 16385, 100003}) {
    const Values uniform = rand({n}, key).to_vector<double>();
    const Values uniform64 = rand({n}, key, {.dtype = f64}).to_vector<double>();
    const Values uniform16 = rand({n}, key, {.dtype = bf16}).to_vector<double>();
    const Values normal = randn({n}, key).to_vector<double>();
    const Values normal64 = randn({n}, key, {.dtype = f64}).to_vector<double>();
    const Values normal16 = randn({n}, key, {.dtype = bf16}).to_vector<double>();
    int64_t wrong = 0;
    for (int64_t i = 0; i < n; ++i) {
      const float u = uniform_from_bits(random_bits(key, uint64_t(i)));
      const uint32_t cut = std::bit_cast<uint32_t>(u) & 0xffff0000u;
      float z[2];
      normals_from_bits(random_bits(key, uint64_t(i & ~1)), random_bits(key, uint64_t(i | 1)), z[0],
                        z[1]);
      const size_t at = size_t(i);
      wrong += uniform[at] != u || uniform64[at] != u ||
               uniform16[at] != std::bit_cast<float>(cut) || normal[at] != z[i & 1] ||
               normal64[at] != z[i & 1] || normal16[at] != float(BFloat16(z[i & 1]));
    }
    INFO("n = " << n);
    CHECK(wrong == 0);
  }
  CHECK(rand({10, 20}, key).to_vector<double>() == rand({200}, key).to_vector<double>());
}

TEST_CASE("random numbers do not depend on the number of threads") {
  const RandomKey key{.seed = 3, .stream = 4};
  Tensor one[2], two[2];
  {
    Threads guard(1);
    one[0] = rand({70001}, key);
    one[1] = randn({70001}, key);
  }
  {
    Threads guard(2);
    two[0] = rand({70001}, key);
    two[1] = randn({70001}, key);
  }
  for (int i : {0, 1}) CHECK(one[i].to_vector<float>() == two[i].to_vector<float>());
}

TEST_CASE("block numbers above 32 bits carry into the second counter word") {
  const RandomKey key{.seed = 9, .stream = 2};
  CHECK(philox(key, uint64_t(1) << 32).v[0] != philox(key, 0).v[0]);
  CHECK(random_bits(key, (uint64_t(1) << 34) + 1) == philox(key, uint64_t(1) << 32).v[1]);
}

TEST_CASE("uniforms lie in [0, 1) and have the moments of a uniform") {
  constexpr int64_t n = 1 << 20;
  for (DType t : floating_dtypes) {
    INFO(name(t));
    const Values x = rand({n}, {.seed = 1}, {.dtype = t}).to_vector<double>();
    CHECK(*std::min_element(x.begin(), x.end()) >= 0);
    CHECK(*std::max_element(x.begin(), x.end()) < 1);
    // The mean and the variance of a uniform: 5 standard errors, and the effect
    // of truncation to bf16.
    const double cut = t == bf16 ? 0x1p-8 : 0, root = std::sqrt(double(n));
    const Moments m(x, 0.5);
    CHECK(std::fabs(m.mean[1]) < 5 * std::sqrt(1.0 / 12) / root + cut);
    CHECK(std::fabs(m.mean[2] - 1.0 / 12) < 5 * std::sqrt(1.0 / 180) / root + cut);
  }
  CHECK(uniform_from_bits(0) == 0);
  CHECK(uniform_from_bits(UINT32_MAX) == 1 - 0x1p-24f);
}

TEST_CASE("normals have the moments of a normal") {
  constexpr int64_t n = 1 << 20;
  const double root = std::sqrt(double(n));
  for (DType t : floating_dtypes) {
    INFO(name(t));
    const Values x = randn({n}, {.seed = 2}, {.dtype = t}).to_vector<double>();
    const Moments m(x, 0);
    const double rounding = t == bf16 ? 0x1p-8 : 0;  // relative and unbiased: well above its effect
    CHECK(std::fabs(m.mean[1]) < 5 / root);
    CHECK(std::fabs(m.mean[2] - 1) < 5 * std::sqrt(2.0) / root + rounding);
    CHECK(std::fabs(m.mean[3]) < 5 * std::sqrt(15.0) / root + rounding);
    CHECK(std::fabs(m.mean[4] - 3) < 5 * std::sqrt(96.0) / root + rounding);
    double neighbors = 0, squares = 0;
    for (size_t i = 0; i + 1 < x.size(); i += 2) {
      neighbors += x[i] * x[i + 1];
      squares += (x[i] * x[i] - 1) * (x[i + 1] * x[i + 1] - 1);
    }
    CHECK(std::fabs(neighbors) < 5 * std::sqrt(n / 2.0));
    CHECK(std::fabs(squares) < 5 * std::sqrt(4 * n / 2.0) + rounding * n / 2);
    CHECK(std::all_of(x.begin(), x.end(), [](double v) { return std::isfinite(v); }));
  }
}

TEST_CASE("without a key every random op takes the next stream of the random state") {
  const RandomState before = random_state();
  manual_seed(17);
  const auto a = rand({5}).to_vector<double>(), b = randn({5}).to_vector<double>();
  CHECK(a == rand({5}, {17, 0}).to_vector<double>());
  CHECK(b == randn({5}, {17, 1}).to_vector<double>());
  CHECK(random_state().next_stream == 2);
  randint(0, 2, {3});
  randperm(3);
  CHECK(random_state().next_stream == 4);
  REQUIRE_THROWS(rand({5}, {.dtype = i64}));
  CHECK(random_state().next_stream == 4 + 1);
  set_random_state(before);
}

TEST_CASE("randint samples each integer equally often") {
  const RandomState before = random_state();
  manual_seed(5);
  for (auto [low, high] : {std::pair<int64_t, int64_t>{0, 7}, {-3, 2}, {5, 6}}) {
    const int64_t n = 70000, range = high - low;
    const Tensor x = randint(low, high, {7, n / 7});
    CHECK(x.dtype() == i64);
    std::vector<double> count(static_cast<size_t>(range));
    for (int64_t v : x.to_vector<int64_t>()) ++count.at(size_t(v - low));  // at() checks the range
    const double p = 1.0 / double(range);
    for (double c : count)
      CHECK(std::fabs(c - double(n) * p) <= 5 * std::sqrt(double(n) * p * (1 - p)));
  }
  for (DType t : all_dtypes) {
    const Values bits = randint(0, 2, {100}, {.dtype = t}).to_vector<double>();
    CHECK(std::set<double>(bits.begin(), bits.end()) == std::set<double>{0, 1});
  }
  const auto wide = randint(INT64_MIN, INT64_MIN + (int64_t(1) << 32), {1000}).to_vector<int64_t>();
  CHECK(*std::max_element(wide.begin(), wide.end()) > INT64_MIN + (int64_t(7) << 29));
  CHECK(*std::max_element(wide.begin(), wide.end()) < INT64_MIN + (int64_t(1) << 32));
  CHECK(randint(0, 3, {0}).numel() == 0);
  set_random_state(before);

  REQUIRE_THROWS_WITH(
      randint(3, 3, {2}),
      "[randint] range [3, 3); low must be less than high, and the range at most 2^32 integers");
  REQUIRE_THROWS_WITH(randint(0, (int64_t(1) << 32) + 1, {2}), Containing("at most 2^32 integers"));
  REQUIRE_THROWS_WITH(randint(0, 257, {2}, {.dtype = u8}),
                      "[randint] range [0, 257) has integers that u8 cannot represent exactly");
  CHECK_NOTHROW(randint(0, 256, {2}, {.dtype = u8}));
}

TEST_CASE("randperm is a permutation, and all permutations are equally likely") {
  const RandomState before = random_state();
  manual_seed(8);
  for (int64_t n : {0, 1, 2, 100}) {
    auto p = randperm(n).to_vector<int64_t>();
    std::sort(p.begin(), p.end());
    CHECK(p == arange(n).to_vector<int64_t>());
  }
  std::vector<double> count(27);
  const int64_t trials = 6000;
  for (int64_t i = 0; i < trials; ++i) {
    const auto p = randperm(3).to_vector<int64_t>();
    ++count[size_t(9 * p[0] + 3 * p[1] + p[2])];
  }
  int orders = 0;
  for (double c : count) {
    if (c == 0) continue;
    ++orders;
    CHECK(std::fabs(c - trials / 6.0) < 5 * std::sqrt(trials * 5.0 / 36));
  }
  CHECK(orders == 6);
  set_random_state(before);
  REQUIRE_THROWS_WITH(randperm(-1), "[randperm] n = -1; accepted: 0 to 2^32");
}
