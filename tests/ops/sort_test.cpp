#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "core/parallel.h"
#include "ops/create.h"
#include "ops/elementwise.h"
#include "ops/indexing.h"
#include "ops/reduce.h"
#include "tests/support/gradcheck.h"

using namespace stretto;
using namespace stretto::testing;

namespace {

using Values = std::vector<double>;
using Indices = std::vector<int64_t>;
constexpr double inf = std::numeric_limits<double>::infinity();
constexpr double NaN = std::numeric_limits<double>::quiet_NaN();

bool less(double a, double b) { return a < b || (std::isnan(b) && !std::isnan(a)); }

Indices reference(const Values& v, bool descending) {
  Indices order(v.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int64_t i, int64_t j) {
    return descending ? less(v[size_t(j)], v[size_t(i)]) : less(v[size_t(i)], v[size_t(j)]);
  });
  return order;
}

// Every line of x along d must be sorted as in the reference, up to its first k elements.
void check_sorted(const Tensor& x, const Sorted& s, int64_t d, bool descending, int64_t k) {
  const int64_t last = x.dim() - 1;
  const auto lines = [&](const Tensor& t) {
    return t.transpose(d, last).contiguous().to_vector<double>();
  };
  REQUIRE(s.values.dtype() == x.dtype());
  REQUIRE(s.indices.dtype() == i64);
  REQUIRE(s.values.shape() == s.indices.shape());
  REQUIRE(s.values.size(d) == k);
  REQUIRE(s.values.is_contiguous());
  REQUIRE(s.indices.is_contiguous());
  const Values from = lines(x), values = lines(s.values), indices = lines(s.indices);
  const size_t n = size_t(x.size(d)), kk = size_t(k);
  size_t wrong = 0;
  for (size_t r = 0; r * kk < values.size(); ++r) {
    const Values line(from.begin() + int64_t(r * n), from.begin() + int64_t((r + 1) * n));
    const Indices order = reference(line, descending);
    for (size_t i = 0; i < kk; ++i) {
      const double v = line[size_t(order[i])], got = values[r * kk + i];
      wrong += indices[r * kk + i] != double(order[i]) ||
               !(got == v || (std::isnan(got) && std::isnan(v)));
    }
  }
  INFO(str(x, " strides ", x.strides(), " along ", d, " descending ", descending, " k ", k));
  CHECK(wrong == 0);
}

void check_all(const Tensor& x) {
  for (int64_t d = 0; d < x.dim(); ++d) {
    const int64_t n = x.size(d);
    for (bool descending : {false, true}) check_sorted(x, sort(x, d, descending), d, descending, n);
    for (int64_t k : {int64_t(0), std::min<int64_t>(n, 1), n / 2, n})
      check_sorted(x, topk(x, k, d), d, true, k);
  }
}

}  // namespace

TEST_CASE("sort and topk agree with the reference for every dtype and layout") {
  for (DType t : {f32, f64, bf16, i64, i32, u8, boolean}) {
    const auto noise = [t](const Shape& shape) {
      return (fixed_noise(shape, 4) * 5.0 + 6.0).to(t);  // with ties in the integer dtypes
    };
    check_all(noise({4, 5, 6}));
    check_all(strided_copy(noise({4, 5, 6})));
    check_all(noise({4, 12}).slice(1, 0, 12, 2));
    check_all(noise({1, 7}).expand({3, 7}));
    check_all(noise({1000}));
    check_all(noise({0}));
    check_all(noise({0, 3}));
    check_all(noise({3, 0}));
  }
}

TEST_CASE("NaN counts as largest and equal values keep their order") {
  for (DType t : {f32, f64, bf16}) {
    const Tensor x = tensor({0.0, NaN, -inf, -0.0, inf, 0.0, NaN, 1.0}).to(t);
    check_all(x);
    CHECK(sort(x).indices.to_vector<int64_t>() == Indices{2, 0, 3, 5, 7, 4, 1, 6});
    CHECK(sort(x, 0, true).indices.to_vector<int64_t>() == Indices{1, 6, 4, 7, 0, 3, 5, 2});
    CHECK(topk(x, 3).indices.to_vector<int64_t>() == Indices{1, 6, 4});
    CHECK(std::signbit(sort(x).values.to_vector<double>()[2]));  // −0 stays −0, at its index
  }
  CHECK(topk(zeros({100}), 5).indices.to_vector<int64_t>() == Indices{0, 1, 2, 3, 4});
}

TEST_CASE("sort does not depend on the number of threads") {
  const Tensor x = randn({64, 1000}, {.seed = 4});
  const int before = num_threads();
  set_num_threads(1);
  const Sorted one = sort(x);
  set_num_threads(2);
  const Sorted two = sort(x);
  set_num_threads(before);
  CHECK(one.indices.to_vector<int64_t>() == two.indices.to_vector<int64_t>());
  CHECK(one.values.to_vector<float>() == two.values.to_vector<float>());
}

TEST_CASE("gradients of sort and topk equal finite differences") {
  const Tensors in{fixed_leaf({3, 5, 2}, 5)};
  for (int64_t d : {0, 1, -1}) {
    check_gradients([&](const Tensors& x) { return sort(square(x[0]), d).values; }, in);
    check_gradients([&](const Tensors& x) { return sort(x[0], d, true).values; }, in);
    check_gradients([&](const Tensors& x) { return topk(square(x[0]), 2, d).values; }, in);
  }
  check_gradients([](const Tensors& x) { return sort(x[0].transpose(0, 1), 0).values; }, in);
  check_gradients([](const Tensors& x) { return topk(x[0], 0).values; }, in);

  // the values are at the indices
  const Sorted s = topk(in[0], 2, 1);
  CHECK(gather(in[0], 1, s.indices).to_vector<double>() == s.values.to_vector<double>());
  CHECK(!s.indices.requires_grad());

  Tensor x = fixed_noise({6}, 2, bf16).set_requires_grad();
  sum(sort(x).values).backward();
  CHECK(x.grad().to_vector<double>() == Values(6, 1));
}

TEST_CASE("errors of sort and topk name what is accepted") {
  REQUIRE_THROWS_WITH(sort(zeros({2, 3}), 2),
                      "[sort] dimension 2 is out of range for a tensor with 2 dimensions");
  REQUIRE_THROWS_WITH(sort(scalar(1)),
                      "[sort] dimension -1 is out of range for a tensor with 0 dimensions");
  REQUIRE_THROWS_WITH(topk(zeros({2, 3}), 4),
                      "[topk] k = 4 of dimension 1 of f32 [2, 3]; accepted: 0 to 3");
  REQUIRE_THROWS_WITH(topk(zeros({2, 3}), -1, 0),
                      "[topk] k = -1 of dimension 0 of f32 [2, 3]; accepted: 0 to 2");
}
