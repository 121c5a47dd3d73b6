#include "ops/attention/skew.h"

#include <array>

#include "core/parallel.h"
#include "ops/create.h"
#include "tests/reference/attention.h"
#include "tests/support/catch.h"
#include "tests/support/compare.h"
#include "tests/support/gradcheck.h"

using namespace stretto;
using testing::check_gradients;
using testing::fixed_leaf;
using testing::fixed_noise;
using testing::same_bits;

namespace {

// y[.., i, j] = x[.., i, j − i + M − 1] where that column exists, else 0.
Tensor by_definition(const Tensor& x, int64_t n) {
  const int64_t m = x.size(-2), w = x.size(-1);
  Shape shape = x.shape();
  shape.back() = n;
  const std::vector<double> from = x.to_vector<double>();
  std::vector<double> to(size_t(shape.numel()));
  for (int64_t row = 0; row < shape.numel() / std::max<int64_t>(n, 1); ++row)
    for (int64_t j = 0; j < n; ++j) {
      const int64_t c = j - row % m + m - 1;
      if (c >= 0 && c < w) to[size_t(row * n + j)] = from[size_t(row * w + c)];
    }
  return tensor(to, shape).to(x.dtype());
}

double dot(const Tensor& a, const Tensor& b) {
  const std::vector<double> x = a.to_vector<double>(), y = b.to_vector<double>();
  double sum = 0;
  for (size_t i = 0; i < x.size(); ++i) sum += x[i] * y[i];
  return sum;
}

}  // namespace

TEST_CASE("skew equals its definition for every width and number of keys") {
  const DType dtype = GENERATE(f32, f64, bf16);
  for (const int64_t m : {1, 2, 5, 33})
    for (const int64_t w : {1, 4, 5, 9, 65, 66})
      for (const int64_t n : {1, 3, 5, 40, 66}) {
        INFO("M " << m << ", W " << w << ", N " << n);
        const Tensor x = fixed_noise({2, 3, m, w}, 1, dtype);
        CHECK(same_bits(skew(x, n), by_definition(x, n)));
      }
}

TEST_CASE("skew accepts any number of leading dimensions") {
  for (const Shape& shape : {Shape{5, 5}, Shape{2, 5, 5}, Shape{2, 1, 2, 2, 5, 5}}) {
    const Tensor x = fixed_noise(shape, 2);
    CHECK(same_bits(skew(x, 5), by_definition(x, 5)));
  }
}

TEST_CASE("unskew reverses skew") {
  for (const auto& [m, w, n] :
       std::vector<std::array<int64_t, 3>>{{5, 9, 5}, {1, 7, 7}, {3, 9, 7}, {33, 97, 65}}) {
    // Every key has a column, so no element of y is lost.
    const Tensor y = fixed_noise({2, m, n}, 3);
    CHECK(same_bits(skew(unskew(y, w), n), y));
  }
  // Causal: hidden elements come back as 0.
  const Tensor y = skew(unskew(ones({4, 4}), 4), 4);
  CHECK(y.to_vector<double>() ==
        std::vector<double>{1, 0, 0, 0, 1, 1, 0, 0, 1, 1, 1, 0, 1, 1, 1, 1});
}

TEST_CASE("unskew is the transpose of skew") {
  for (const int64_t m : {1, 4, 9})
    for (const int64_t w : {1, 6, 17})
      for (const int64_t n : {1, 4, 12}) {
        const Tensor x = fixed_noise({2, m, w}, 4), y = fixed_noise({2, m, n}, 5);
        CHECK(dot(skew(x, n), y) == Approx(dot(x, unskew(y, w))).margin(1e-13));
      }
}

TEST_CASE("skew and unskew: gradients and second gradients equal finite differences") {
  for (const auto& [m, w, n] :
       std::vector<std::array<int64_t, 3>>{{4, 4, 4}, {3, 5, 3}, {2, 5, 5}, {3, 2, 6}, {1, 3, 2}}) {
    INFO("M " << m << ", W " << w << ", N " << n);
    check_gradients([n = n](const Tensors& in) { return skew(in[0], n); },
                    {fixed_leaf({2, m, w}, 6)});
    check_gradients([w = w](const Tensors& in) { return unskew(in[0], w); },
                    {fixed_leaf({2, m, n}, 7)});
  }
}

TEST_CASE("the gradient of skew is 1 for columns that the papers place, and 0 for unused columns") {
  const Tensor x = fixed_leaf({3, 7}, 8);  // 3 queries, 7 keys: the first query uses columns 2 … 6
  skew(x, 7).backward(ones({3, 7}, {.dtype = f64}));
  CHECK(x.grad().to_vector<double>() == std::vector<double>{0, 0, 1, 1, 1, 1, 1,  //
                                                            0, 1, 1, 1, 1, 1, 1,  //
                                                            1, 1, 1, 1, 1, 1, 1});
}

TEST_CASE("skew of views equals skew of contiguous tensors") {
  const Tensor x = fixed_noise({3, 4, 6}, 9);
  const Tensor expected = skew(x, 5);
  CHECK(same_bits(skew(testing::strided_copy(x), 5), expected));
  CHECK(same_bits(skew(x.transpose(1, 2).contiguous().transpose(1, 2), 5), expected));
  const Tensor row = fixed_noise({1, 1, 6}, 10).expand({2, 4, 6});  // one bias for all queries
  CHECK(same_bits(skew(row, 6), by_definition(row.contiguous(), 6)));
}

TEST_CASE("skew is bit-identical for any number of threads") {
  const int threads = num_threads();
  const Tensor x = fixed_noise({8, 130, 195}, 11, f32);
  set_num_threads(1);
  const Tensor one = skew(x, 195);
  set_num_threads(2);
  CHECK(same_bits(skew(x, 195), one));
  set_num_threads(threads);
}

TEST_CASE("skew of empty tensors is empty or zero") {
  CHECK(skew(zeros({2, 0, 5}), 5).shape() == Shape{2, 0, 5});
  CHECK(skew(zeros({0, 4, 5}), 5).shape() == Shape{0, 4, 5});
  CHECK(skew(zeros({2, 4, 5}), 0).shape() == Shape{2, 4, 0});
  CHECK(same_bits(skew(ones({2, 4, 0}), 3), zeros({2, 4, 3})));
  CHECK(same_bits(unskew(ones({2, 4, 0}), 3), zeros({2, 4, 3})));
}

TEST_CASE("skew: errors") {
  CHECK_THROWS_WITH(skew(zeros({5}), 5),
                    "[skew] got f32 [5]; accepted: a floating-point tensor with at least 2 "
                    "dimensions");
  CHECK_THROWS_WITH(skew(zeros({2, 2}, {.dtype = i64}), 2),
                    "[skew] got i64 [2, 2]; accepted: a floating-point tensor with at least 2 "
                    "dimensions");
  CHECK_THROWS_WITH(skew(zeros({2, 2}), -1), "[skew] n_keys is -1; must be 0 or more");
  CHECK_THROWS_WITH(unskew(zeros({5}), 5), Containing("[unskew] got f32 [5]"));
}
