// Pooling and interpolation at their limits: infinities, NaN, ties, sizes that do not change.
// Values, derivatives and errors are in the op table (tests/reference/op_table_conv.cpp).
#include "ops/conv/pool.h"

#include <cmath>
#include <vector>

#include "autograd/tape.h"
#include "ops/conv/interpolate.h"
#include "ops/create.h"
#include "ops/reduce.h"
#include "tests/support/compare.h"
#include "tests/support/gradcheck.h"

namespace stretto::testing {
namespace {

constexpr double infinity = HUGE_VAL;

Tensor line(const std::vector<double>& v) { return tensor(v, {1, 1, int64_t(v.size())}); }

}  // namespace

TEST_CASE("max_pool ignores its padding, also if all values are −∞", "[ops]") {
  const Tensor x = line({-infinity, -infinity, -5}).set_requires_grad();
  const Tensor y = max_pool1d(x, 3, {.stride = 1, .padding = 1});
  CHECK(y.to_vector<double>() == std::vector<double>{-infinity, -5, -5});
  CHECK(grad({y}, {x}, {line({1, 2, 3})})[0].to_vector<double>() == std::vector<double>{1, 0, 5});
}

TEST_CASE("max_pool gives the gradient to the first of equal values, and NaN for NaN", "[ops]") {
  const Tensor x = line({2, 2, 1, NAN}).set_requires_grad();
  const Tensor y = max_pool1d(x, 2);
  CHECK(y.to_vector<double>()[0] == 2);
  CHECK(std::isnan(y.to_vector<double>()[1]));
  CHECK(grad({y}, {x}, {line({3, 0})})[0].to_vector<double>()[0] == 3);
}

TEST_CASE("The stride of a pool is its kernel unless given", "[ops]") {
  const Tensor x = fixed_noise({1, 2, 6, 6}, 1);
  CHECK(max_pool2d(x, {3, 2}).shape() == Shape{1, 2, 2, 3});
  CHECK(avg_pool2d(x, {3, 2}).shape() == Shape{1, 2, 2, 3});
  CHECK(avg_pool2d(x, 3, {.stride = {1, 0}}).shape() == Shape{1, 2, 4, 2});
  CHECK(worst_error(avg_pool2d(x, 6).reshape({1, 2}), mean(x, {2, 3})) < 1e-15);
}

TEST_CASE("interpolate to the same size returns the values", "[ops]") {
  const Tensor x = fixed_noise({2, 3, 4, 5}, 1);
  for (const InterpolateMode mode : {InterpolateMode::nearest, InterpolateMode::linear})
    CHECK(equal(interpolate(x, {4, 5}, {.mode = mode}), x));
  CHECK(equal(interpolate(line({7}), {3}, {.mode = InterpolateMode::linear}), line({7, 7, 7})));
}

TEST_CASE("interpolate repeats, drops or blends elements", "[ops]") {
  CHECK(equal(interpolate(line({1, 2}), {4}), line({1, 1, 2, 2})));
  CHECK(equal(interpolate(line({1, 2, 3}), {2}), line({1, 2})));
  const InterpolateOptions linear{.mode = InterpolateMode::linear};
  CHECK(equal(interpolate(line({0, 8}), {4}, linear), line({0, 2, 6, 8})));
  CHECK(equal(interpolate(line({0, 8}), {5}, {.mode = linear.mode, .align_corners = true}),
              line({0, 2, 4, 6, 8})));
}

}  // namespace stretto::testing
