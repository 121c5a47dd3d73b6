#include <algorithm>
#include <cmath>

#include "benchmarks/ladders/ladder.h"
#include "tests/support/catch.h"
#include "tests/support/compare.h"

using namespace stretto;

namespace {

double largest_difference(const Tensor& a, const Tensor& b) {
  REQUIRE(a.shape() == b.shape());
  const std::vector<double> x = a.to_vector<double>(), y = b.to_vector<double>();
  double largest = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    REQUIRE(std::isfinite(x[i]));
    largest = std::max(largest, std::fabs(x[i] - y[i]));
  }
  return largest;
}

}  // namespace

TEST_CASE("All steps of a ladder give the same results", "[ladders]") {
  for (const ladders::Ladder& ladder : ladders::all())
    for (const int64_t n : {1, 2, 31, 32, 67, 200}) {
      const Tensors inputs = ladder.inputs(n);
      const Tensor expected = ladder.steps[0].run(inputs);
      for (const ladders::Step& step : ladder.steps) {
        INFO(ladder.name << ", n = " << n << ": " << step.name);
        CHECK(largest_difference(step.run(inputs), expected) <= ladder.tolerance(n));
      }
    }
}

TEST_CASE("The results of all steps of a ladder depend on all inputs", "[ladders]") {
  for (const ladders::Ladder& ladder : ladders::all()) {
    const Tensors inputs = ladder.inputs(67);
    for (const ladders::Step& step : ladder.steps)
      for (size_t i = 0; i < inputs.size(); ++i) {
        INFO(ladder.name << ": " << step.name << ", input " << i);
        Tensors others = inputs;
        others[i] = ladders::noise(inputs[i].shape(), 9, 0.2, 0.9);
        CHECK(largest_difference(step.run(others), step.run(inputs)) > 1e-3);
      }
  }
}

TEST_CASE("All steps of the matmul ladder except BLAS are bit-identical", "[ladders]") {
  const ladders::Ladder ladder = ladders::matmul();
  const Tensors inputs = ladder.inputs(131);
  const Tensor expected = ladder.steps[0].run(inputs);
  for (size_t i = 1; i + 1 < ladder.steps.size(); ++i) {
    INFO(ladder.steps[i].name);
    CHECK(testing::same_bits(ladder.steps[i].run(inputs), expected));
  }
}
