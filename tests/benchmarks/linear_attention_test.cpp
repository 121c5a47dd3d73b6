#include "benchmarks/linear_attention.h"

#include "nn/init.h"
#include "tests/support/catch.h"

using namespace stretto;

TEST_CASE("fit_line fits a line by least squares") {
  const benchmarks::LineFit exact = benchmarks::fit_line({1, 2, 4, 8}, {5, 7, 11, 19});
  CHECK(exact.slope == Approx(2));
  CHECK(exact.intercept == Approx(3));
  CHECK(exact.r_squared == Approx(1));
  CHECK(exact.largest_deviation < 1e-14);
  // Σ (x − 2)(y − 3) = 1 and Σ (x − 2)² = 2: the line is 2 + ½x, the residuals −½, 1, −½.
  const benchmarks::LineFit rough = benchmarks::fit_line({1, 2, 3}, {2, 4, 3});
  CHECK(rough.slope == Approx(0.5));
  CHECK(rough.intercept == Approx(2));
  CHECK(rough.r_squared == Approx(1 - 1.5 / 2));
  CHECK(rough.largest_deviation == Approx(1 / 3.0));
  CHECK(benchmarks::fit_line({1, 2}, {3, 3}).r_squared == 1);
}

TEST_CASE("the memory of a Performer layer's training step is linear in the length") {
  manual_seed(1);
  benchmarks::PerformerStep step({.d_model = 32, .heads = 2, .d_hidden = 64, .features = 32});
  step(randn({1, 8, 32}));
  std::vector<double> lengths, peaks;
  for (const int64_t length : {2048, 4096, 8192, 16384}) {
    const Tensor x = randn({1, length, 32});
    step(x);
    reset_peak_memory();
    step(x);
    lengths.push_back(double(length));
    peaks.push_back(double(memory_stats().peak));
  }
  const benchmarks::LineFit fit = benchmarks::fit_line(lengths, peaks);
  CHECK(fit.r_squared > 0.9999);
  CHECK(fit.largest_deviation < 0.02);
}
