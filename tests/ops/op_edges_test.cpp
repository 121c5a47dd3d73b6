// Powers, remainders, rounding, products and scans at kinks, zeros, infinities and NaN
// [ops/elementwise.h, ops/reduce.h].
#include <cmath>
#include <limits>
#include <vector>

#include "autograd/tape.h"
#include "ops/create.h"
#include "ops/elementwise.h"
#include "ops/reduce.h"
#include "tests/support/catch.h"
#include "tests/support/compare.h"
#include "tests/support/gradcheck.h"

namespace stretto {
namespace {

using testing::same_bits;

constexpr double inf = std::numeric_limits<double>::infinity();
constexpr double nan = std::numeric_limits<double>::quiet_NaN();

Tensor row(const std::vector<double>& v) { return tensor(v, {int64_t(v.size())}); }

std::vector<double> gradient_of(const testing::TensorFunction& f, const Tensor& x) {
  const Tensor leaf = x.detach().set_requires_grad();
  return grad({sum(f({leaf}))}, {leaf})[0].to_vector<double>();
}

}  // namespace

TEST_CASE("round goes to the even integer, and integers stay", "[ops]") {
  const Tensor x = row({-2.5, -1.5, -0.5, 0.5, 1.5, 2.5, inf});
  for (DType dtype : {f32, f64, bf16}) {
    CHECK(same_bits(round(x.to(dtype)), row({-2, -2, -0.0, 0, 2, 2, inf}).to(dtype)));
    CHECK(same_bits(floor(x.to(dtype)), row({-3, -2, -1, 0, 1, 2, inf}).to(dtype)));
    CHECK(same_bits(ceil(x.to(dtype)), row({-2, -1, -0.0, 1, 2, 3, inf}).to(dtype)));
    CHECK(same_bits(trunc(x.to(dtype)), row({-2, -1, -0.0, 0, 1, 2, inf}).to(dtype)));
    CHECK(std::isnan(round(scalar(nan, {.dtype = dtype})).item()));
  }
  const int64_t big = (int64_t(1) << 60) + 1;
  for (auto f : {floor, ceil, trunc, round})
    CHECK(same_bits(f(tensor<int64_t>({big, -3})), tensor<int64_t>({big, -3})));
  CHECK(!round(ones({2}, {.requires_grad = true})).requires_grad());
}

TEST_CASE("isnan, isinf and isfinite of floats and integers", "[ops]") {
  const Tensor x = row({nan, inf, -inf, 0, 1e300});
  CHECK(same_bits(isnan(x), tensor<bool>({true, false, false, false, false})));
  CHECK(same_bits(isinf(x), tensor<bool>({false, true, true, false, false})));
  CHECK(same_bits(isfinite(x), tensor<bool>({false, false, false, true, true})));
  for (DType dtype : {i64, i32, u8, boolean}) {
    const Tensor n = ones({2}, {.dtype = dtype});
    CHECK(same_bits(isnan(n), tensor<bool>({false, false})));
    CHECK(same_bits(isinf(n), tensor<bool>({false, false})));
    CHECK(same_bits(isfinite(n), tensor<bool>({true, true})));
  }
}

TEST_CASE("remainders have the sign of the divisor", "[ops]") {
  const std::vector<int64_t> a = {7, -7, 7, -7, 6, 5, INT64_MIN}, b = {3, 3, -3, -3, 3, 0, -1};
  const Tensor x = tensor(a, {7}), y = tensor(b, {7});
  CHECK(same_bits(remainder(x, y), tensor<int64_t>({1, 2, -2, -1, 0, 0, 0})));
  CHECK(same_bits(remainder(tensor<int32_t>({7, -7}), -3), tensor<int32_t>({-2, -1})));
  CHECK(same_bits(remainder(tensor<uint8_t>({7, 255}), tensor<uint8_t>({255, 255})),
                  tensor<uint8_t>({7, 0})));
  CHECK(same_bits(remainder(tensor<int64_t>({7, -7}), 2.5), tensor<float>({2, 0.5f})));
  const auto r =
      remainder(row({5.5, -5.5, 1, -1, inf, 1, nan, 0}), row({2, 2, inf, inf, 2, 0, 1, -3}))
          .to_vector<double>();
  CHECK(std::vector<double>(r.begin(), r.begin() + 4) == std::vector<double>{1.5, 0.5, 1, inf});
  for (size_t i : {4, 5, 6}) CHECK(std::isnan(r[i]));
  CHECK(r[7] == 0);
}

TEST_CASE("floor_divide rounds quotients down, of integers exactly", "[ops]") {
  const std::vector<int64_t> a = {7, -7, 7, -7, 6, 5, INT64_MIN, INT64_MAX},
                             b = {3, 3, -3, -3, 3, 0, -1, 2};
  const Tensor x = tensor(a, {8}), y = tensor(b, {8});
  CHECK(same_bits(floor_divide(x, y),
                  tensor<int64_t>({2, -3, -3, 2, 2, 0, INT64_MIN, INT64_MAX / 2})));
  CHECK(same_bits(floor_divide(tensor<int32_t>({7, -7}), -3), tensor<int32_t>({-3, 2})));
  CHECK(same_bits(floor_divide(tensor<uint8_t>({7, 255}), tensor<uint8_t>({2, 255})),
                  tensor<uint8_t>({3, 1})));
  CHECK(same_bits(floor_divide(tensor<bool>({true, false}), 1), tensor<int64_t>({1, 0})));
  CHECK(same_bits(floor_divide(tensor<int64_t>({7, -7}), 2.5), tensor<float>({2, -3})));
  CHECK(same_bits(floor_divide(tensor<int64_t>({7}), tensor<float>({2})), tensor<float>({3})));
  // As Python's and PyTorch's //: 1 // 0.1 is 9, because 0.1 is more than a tenth.
  CHECK(same_bits(floor_divide(row({1, -1, 5.5, -5.5, 1, -1, -0.0, 0, 3, -3}),
                               row({0.1, 0.1, 2, 2, inf, inf, 2, -2, 0, 0})),
                  row({9, -10, 2, -3, 0, -1, -0.0, -0.0, inf, -inf})));
  for (const double v :
       floor_divide(row({inf, nan, 0, 1}), row({2, 1, 0, nan})).to_vector<double>())
    CHECK(std::isnan(v));
  CHECK(!floor_divide(row({1}).set_requires_grad(), 2).requires_grad());
}

TEST_CASE("powers and their slopes at 0 and 1", "[ops]") {
  const Tensor x = row({0, 0, 0, -2, 1, nan, 0}), y = row({0, 2, -1, 3, nan, 0, 0.5});
  const auto p = pow(x, y).to_vector<double>();
  CHECK(p == std::vector<double>{1, 0, inf, -8, 1, 1, 0});
  const auto in_x = gradient_of([&](const Tensors& t) { return pow(t[0], y); }, x);
  CHECK(in_x[0] == 0);
  CHECK(in_x[1] == 0);
  CHECK(in_x[2] == -inf);
  CHECK(in_x[3] == 12);
  CHECK(in_x[5] == 0);
  CHECK(in_x[6] == inf);
  const auto in_y = gradient_of([&](const Tensors& t) { return pow(x, t[0]); }, y);
  CHECK(in_y[0] == 0);
  CHECK(in_y[1] == 0);
  CHECK(in_y[2] == -inf);
  CHECK(std::isnan(in_y[3]));  // the logarithm of a negative number
  CHECK(in_y[6] == 0);
  CHECK(pow(2.0, tensor<int64_t>({3, -1})).to_vector<double>() == std::vector<double>{8, 0.5});
  // Second derivatives at 0⁰ and 0^y.
  for (const double exponent : {0.0, 1.0, 2.0}) {
    const Tensor u = row({0}).set_requires_grad(), v = row({exponent}).set_requires_grad();
    const Tensors first = grad({pow(u, v)}, {u, v}, {}, {.create_graph = true});
    CHECK(grad({first[0]}, {u}, {}, {.retain_graph = true})[0].item() == (exponent == 2 ? 2 : 0));
    CHECK(grad({first[1]}, {v})[0].item() == 0);
    const Tensor once = grad({pow(0.0, v)}, {v}, {}, {.create_graph = true})[0];
    CHECK(grad({once}, {v})[0].item() == 0);
  }
}

TEST_CASE("products of zeros have the exact gradient", "[ops]") {
  const auto product = [](const Tensors& x) { return prod(x[0]); };
  CHECK(gradient_of(product, row({2, 0, 3, 5})) == std::vector<double>{0, 30, 0, 0});
  CHECK(gradient_of(product, row({2, 0, 3, 0})) == std::vector<double>{0, 0, 0, 0});
  for (const Tensor& x : {row({2, 0, 3, 5, -1}), row({0, 0, 1.5}), row({0.5, -2, 0})}) {
    const Tensor leaf = x.set_requires_grad();
    testing::check_gradients(product, {leaf});
    testing::check_gradients([](const Tensors& t) { return cumprod(t[0], 0); }, {leaf});
  }
  CHECK(same_bits(prod(tensor<int32_t>({1 << 20, 1 << 20, 3})), scalar(0x3p40, {.dtype = i64})));
  CHECK(same_bits(cumprod(tensor<bool>({true, true, false}), 0), tensor<int64_t>({1, 1, 0})));
}

TEST_CASE("std of equal values has the gradients 0", "[ops]") {
  for (const double v : {0.0, 2.0}) {
    const Tensor x = row({v, v, v}).set_requires_grad();
    const Tensor first = grad({std(x)}, {x}, {}, {.create_graph = true})[0];
    CHECK(first.to_vector<double>() == std::vector<double>{0, 0, 0});
    CHECK(grad({sum(first)}, {x})[0].to_vector<double>() == std::vector<double>{0, 0, 0});
  }
  const Tensor x = tensor(std::vector<double>{1, 1, 1, 2}, {2, 2}).set_requires_grad();
  const std::vector<double> g = grad({sum(std(x, {1}))}, {x})[0].to_vector<double>();
  CHECK(std::vector<double>(g.begin(), g.begin() + 2) == std::vector<double>{0, 0});
  CHECK(g[3] == Approx(std::sqrt(0.5)));
}

TEST_CASE("norms of zeros have the gradient 0, and norms of integers are refused", "[ops]") {
  for (double p : {1.0, 2.0, 3.0, inf}) {
    INFO("p = " << p);
    const auto g = gradient_of([p](const Tensors& x) { return norm(x[0], p); }, row({0, 0}));
    CHECK(g == std::vector<double>{0, 0});
  }
  const auto half = [](const Tensors& x) { return norm(x[0], 0.5); };
  CHECK(gradient_of(half, row({0, 4, 1})) == std::vector<double>{0, 1.5, 3});
  CHECK(gradient_of(half, row({0, 0})) == std::vector<double>{0, 0});
  CHECK(norm(scalar(-3)).item() == 3);
  const auto f = [](const Tensors& x) { return norm(x[0], 2, {1}); };
  testing::check_gradients(f, {testing::fixed_leaf({2, 3}, 4)});
}

TEST_CASE("logcumsumexp keeps infinities apart and follows NaN", "[ops]") {
  for (DType dtype : {f64, f32, bf16}) {
    const auto sums = [dtype](const std::vector<double>& v) {
      return logcumsumexp(row(v).to(dtype), 0).to_vector<double>();
    };
    CHECK(sums({-inf, -inf, 0, -inf}) == std::vector<double>{-inf, -inf, 0, 0});
    CHECK(sums({1000, inf, 5}) == std::vector<double>{1000, inf, inf});
    CHECK(sums({inf, -inf}) == std::vector<double>{inf, inf});
    const auto with_nan = sums({1, nan, 2});
    CHECK(with_nan[0] == 1);
    CHECK(std::isnan(with_nan[1]));
    CHECK(std::isnan(with_nan[2]));
  }
  const auto f = [](const Tensors& x) { return logcumsumexp(x[0], 0); };
  // The first result is the first value itself.
  CHECK(gradient_of(f, row({-inf, -inf, 0})) == std::vector<double>{1, 0, 1});
  testing::check_gradients(f, {row({0.5, 0.5, 0.5, -800, 700}).set_requires_grad()});  // ties
}

TEST_CASE("any and all count NaN as true", "[ops]") {
  CHECK(any(row({0, nan})).item() == 1);
  CHECK(all(row({1, nan})).item() == 1);
  CHECK(all(row({1, -0.0})).item() == 0);
}

}  // namespace stretto
