#include "nn/positions/sinusoid.h"

#include <cmath>

#include "tests/support/catch.h"

using namespace stretto;
using nn::Sinusoid;

namespace {

// The formulas, element by element.
double interleaved(double t, int64_t c, int64_t d) {
  const double angle = t / std::pow(10000.0, double(c - c % 2) / double(d));
  return c % 2 == 0 ? std::sin(angle) : std::cos(angle);
}
double concatenated(double t, int64_t c, int64_t d) {
  const int64_t i = c % (d / 2);
  const double angle = t / std::pow(10000.0, 2.0 * double(i) / double(d));
  return c < d / 2 ? std::sin(angle) : std::cos(angle);
}
double tensor2tensor(double t, int64_t c, int64_t d) {
  const int64_t half = d / 2;
  if (c >= 2 * half) return 0;
  const double increment = std::log(10000.0) / double(std::max<int64_t>(half - 1, 1));
  const double angle = t * std::exp(-double(c % half) * increment);
  return c < half ? std::sin(angle) : std::cos(angle);
}

}  // namespace

TEST_CASE("sinusoids follow the three formulas") {
  struct Case {
    Sinusoid layout;
    double (*formula)(double, int64_t, int64_t);
    std::vector<int64_t> sizes;
  };
  for (const Case& c : {Case{Sinusoid::interleaved, interleaved, {1, 2, 7, 64}},
                        Case{Sinusoid::concatenated, concatenated, {2, 6, 64}},
                        Case{Sinusoid::tensor2tensor, tensor2tensor, {1, 2, 3, 4, 7, 64}}}) {
    for (int64_t d : c.sizes) {
      for (const auto& [first, step] : {std::pair<int64_t, int64_t>{0, 1}, {5, 1}, {19, -1}}) {
        const Tensor table = nn::sinusoids(20, d, c.layout, first, step, {.dtype = f64});
        REQUIRE(table.shape() == Shape{20, d});
        const std::vector<double> values = table.to_vector<double>();
        for (int64_t t = 0; t < 20; ++t)
          for (int64_t col = 0; col < d; ++col)
            // Two ways to compute a frequency differ by some ulps, times angles up to 24.
            CHECK(values[size_t(t * d + col)] ==
                  Approx(c.formula(double(first + t * step), col, d)).margin(1e-13));
      }
    }
  }
}

TEST_CASE("sinusoids equal values computed by hand") {
  const std::vector<float> at_1 = nn::sinusoids(2, 4, Sinusoid::interleaved)[1].to_vector<float>();
  CHECK(at_1 == std::vector<float>{0.841470985f, 0.540302306f, 0.00999983333f, 0.999950000f});
  const std::vector<float> joined =
      nn::sinusoids(2, 4, Sinusoid::concatenated)[1].to_vector<float>();
  CHECK(joined == std::vector<float>{0.841470985f, 0.00999983333f, 0.540302306f, 0.999950000f});
  const std::vector<float> t2t = nn::sinusoids(2, 5, Sinusoid::tensor2tensor)[1].to_vector<float>();
  CHECK(t2t == std::vector<float>{0.841470985f, 0.0001f, 0.540302306f, 1.0f, 0.0f});
  CHECK(nn::sinusoids(1, 4, Sinusoid::interleaved)[0].to_vector<float>() ==
        std::vector<float>{0, 1, 0, 1});
}

TEST_CASE("sinusoids: any positions, dtypes and sizes") {
  const std::vector<double> positions = {3, 0.5, 3};
  const Tensor table = nn::sinusoids(positions, 2, Sinusoid::interleaved, {.dtype = f64});
  CHECK(table[1][0].item() == std::sin(0.5));
  CHECK(table[0].to_vector<double>() == table[2].to_vector<double>());
  CHECK(nn::sinusoids(2, 2, Sinusoid::interleaved, 0, 1, {.dtype = bf16}).dtype() == bf16);
  CHECK(nn::sinusoids(0, 2, Sinusoid::interleaved).shape() == Shape{0, 2});
  CHECK_THROWS_WITH(nn::sinusoids(2, 3, Sinusoid::concatenated), Containing("[sinusoids] the con"));
  CHECK_THROWS_WITH(nn::sinusoids(2, 0, Sinusoid::interleaved), Containing("at least 1"));
  CHECK_THROWS_WITH(nn::sinusoids(-1, 2, Sinusoid::interleaved), Containing("-1 positions"));
}
