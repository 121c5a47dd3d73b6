#include "nn/init.h"

#include <cmath>

#include "core/random.h"
#include "ops/create.h"
#include "ops/matmul.h"
#include "tests/support/catch.h"

using namespace stretto;

namespace {

struct Moments {
  double mean = 0, variance = 0, low = INFINITY, high = -INFINITY;
};

Moments moments(const Tensor& x) {
  Moments m;
  const std::vector<double> values = x.to_vector<double>();
  for (double v : values) {
    m.mean += v / double(values.size());
    m.low = std::min(m.low, v);
    m.high = std::max(m.high, v);
  }
  for (double v : values) m.variance += (v - m.mean) * (v - m.mean) / double(values.size());
  return m;
}

// Checks mean and variance within five standard errors. `excess` is the excess kurtosis of the
// distribution, on which the spread of a variance depends.
void check_moments(const Tensor& x, double mean, double variance, double kurtosis) {
  const Moments m = moments(x);
  const double n = double(x.numel());
  CHECK(m.mean == Approx(mean).margin(5 * std::sqrt(variance / n)));
  CHECK(m.variance == Approx(variance).margin(5 * variance * std::sqrt((kurtosis - 1) / n)));
}

constexpr double normal_kurtosis = 3, uniform_kurtosis = 1.8;

}  // namespace

TEST_CASE("uniform_ and normal_ have the right moments in every floating dtype") {
  manual_seed(11);
  for (DType dtype : {f32, f64, bf16}) {
    const Tensor x = empty({100, 500}, {.dtype = dtype});
    nn::uniform_(x, -1, 3);
    check_moments(x, 1, 16.0 / 12, uniform_kurtosis);
    CHECK(moments(x).low >= -1);
    CHECK(moments(x).high <= 3);
    nn::normal_(x, 2, 0.5);
    check_moments(x, 2, 0.25, normal_kurtosis);
  }
  const Tensor c = empty({3});
  nn::constant_(c, 4);
  CHECK(c.to_vector<float>() == std::vector<float>(3, 4));
  CHECK_THROWS_WITH(nn::uniform_(c, 1, 0), Containing("[uniform_]"));
  CHECK_THROWS_WITH(nn::normal_(c, 0, -1), Containing("[normal_]"));
}

TEST_CASE("initializers repeat with the seed, accept parameters, and take one key each") {
  Tensor a = empty({5, 5}).set_requires_grad(), b = empty({5, 5});
  manual_seed(12);
  nn::xavier_uniform_(a);
  CHECK(random_state().next_stream == 1);
  nn::uniform_(b);
  CHECK(a.to_vector<float>() != b.to_vector<float>());
  manual_seed(12);
  nn::xavier_uniform_(b);
  CHECK(a.to_vector<float>() == b.to_vector<float>());
  CHECK(a.requires_grad());
}

TEST_CASE("Xavier and Kaiming use PyTorch's fans") {
  manual_seed(13);
  const nn::Fans f = nn::fans(empty({20, 30, 2, 5}));
  CHECK(f.in == 300);
  CHECK(f.out == 200);
  CHECK_THROWS_WITH(nn::fans(empty({3})), Containing("[fans] needs at least 2"));

  const Tensor x = empty({200, 300});
  nn::xavier_uniform_(x, 2);
  check_moments(x, 0, 4 * 2.0 / 500, uniform_kurtosis);
  CHECK(moments(x).high <= 2 * std::sqrt(6.0 / 500));
  nn::xavier_normal_(x);
  check_moments(x, 0, 2.0 / 500, normal_kurtosis);
  nn::kaiming_uniform_(x);
  check_moments(x, 0, 2.0 / 300, uniform_kurtosis);
  nn::kaiming_uniform_(x, std::sqrt(5.0));  // as nn::Linear: ±1/√in
  check_moments(x, 0, 1.0 / 900, uniform_kurtosis);
  CHECK(moments(x).high <= 1 / std::sqrt(300.0));
  nn::kaiming_normal_(x, 0, nn::Fan::out);
  check_moments(x, 0, 2.0 / 200, normal_kurtosis);
}

TEST_CASE("trunc_normal_ stays inside its bounds and has the density of a normal there") {
  manual_seed(14);
  const Tensor x = empty({100000}, {.dtype = f64});
  nn::trunc_normal_(x, 0, 1, -2, 2);
  // Variance of the standard normal cut at ±2: 1 − 2·2·φ(2) / (Φ(2) − Φ(−2)).
  const double phi = std::exp(-2.0) / std::sqrt(2 * M_PI), mass = std::erf(2 / std::sqrt(2.0));
  check_moments(x, 0, 1 - 4 * phi / mass, 2.4);
  CHECK(moments(x).low >= -2);
  CHECK(moments(x).high <= 2);
  int64_t inner = 0;
  for (double v : x.to_vector<double>()) inner += std::abs(v) < 1;
  const double p = std::erf(1 / std::sqrt(2.0)) / mass;
  CHECK(double(inner) / 1e5 == Approx(p).margin(5 * std::sqrt(p * (1 - p) / 1e5)));

  // Far in a tail the density is that of an exponential with rate 10.
  nn::trunc_normal_(x, -5, 0.5, 0, 10);
  CHECK(moments(x).low >= 0);
  CHECK(moments(x).mean == Approx(0.5 * 0.0981).epsilon(0.02));
  nn::trunc_normal_(x, 5, 0.5, -10, 0);
  CHECK(moments(x).high <= 0);
  CHECK(moments(x).mean == Approx(-0.5 * 0.0981).epsilon(0.02));
  CHECK_THROWS_WITH(nn::trunc_normal_(x, 0, 1, 2, 2), Containing("[trunc_normal_] needs"));
  CHECK_THROWS_WITH(nn::trunc_normal_(x, 0, 1, 50, 60), Containing("has no probability"));
}

TEST_CASE("orthogonal_ gives orthonormal rows or columns with uniform directions") {
  manual_seed(15);
  for (const Shape& shape :
       {Shape{7, 7}, Shape{3, 10}, Shape{10, 3}, Shape{4, 2, 3}, Shape{1, 1}}) {
    const Tensor x = empty(shape, {.dtype = f64});
    nn::orthogonal_(x, 3);
    const Tensor m = x.reshape({shape[0], -1});
    const bool wide = m.size(0) <= m.size(1);
    const Tensor product = wide ? matmul(m, m.transpose(0, 1)) : matmul(m.transpose(0, 1), m);
    const std::vector<double> values = product.to_vector<double>();
    const int64_t n = product.size(0);
    for (int64_t i = 0; i < n; ++i)
      for (int64_t j = 0; j < n; ++j)
        CHECK(values[size_t(i * n + j)] == Approx(i == j ? 9 : 0).margin(1e-13));
  }
  // Without the sign correction the diagonal of Q would have a preferred sign.
  int positive = 0;
  for (int i = 0; i < 400; ++i) {
    const Tensor x = empty({2, 2}, {.dtype = f64});
    nn::orthogonal_(x);
    positive += x[0][0].item() > 0;
    positive += x[1][1].item() > 0;
  }
  CHECK(positive == Approx(400).margin(5 * std::sqrt(800 * 0.5)));
  nn::orthogonal_(empty({0, 3}));
  CHECK_THROWS_WITH(nn::orthogonal_(empty({3})), Containing("[orthogonal_]"));
}
