// Members of Tensor that call functions, compound assignment, in-place ops and printing
// [core/tensor.h, ops/elementwise.h].
#include <cmath>
#include <iomanip>
#include <sstream>
#include <utility>
#include <vector>

#include "autograd/tape.h"
#include "ops/create.h"
#include "ops/elementwise.h"
#include "ops/indexing.h"
#include "ops/matmul.h"
#include "ops/reduce.h"
#include "ops/softmax.h"
#include "tests/support/catch.h"
#include "tests/support/compare.h"
#include "tests/support/gradcheck.h"

namespace stretto {
namespace {

using testing::fixed_noise;
using testing::same_bits;

}  // namespace

TEST_CASE("members equal the functions of their names", "[ops]") {
  const Tensor x = abs(fixed_noise({3, 4}, 1)) + 0.5, y = fixed_noise({4, 2}, 2);
  const std::vector<std::pair<Tensor (Tensor::*)() const, Tensor (*)(const Tensor&)>> unary{
      {&Tensor::neg, neg},         {&Tensor::exp, exp},
      {&Tensor::log, log},         {&Tensor::log1p, log1p},
      {&Tensor::expm1, expm1},     {&Tensor::sin, sin},
      {&Tensor::cos, cos},         {&Tensor::tanh, tanh},
      {&Tensor::sigmoid, sigmoid}, {&Tensor::erf, erf},
      {&Tensor::abs, abs},         {&Tensor::relu, relu},
      {&Tensor::gelu, gelu},       {&Tensor::gelu_tanh, gelu_tanh},
      {&Tensor::silu, silu},       {&Tensor::softplus, softplus},
      {&Tensor::square, square},   {&Tensor::sqrt, sqrt},
      {&Tensor::rsqrt, rsqrt},     {&Tensor::heaviside, heaviside},
      {&Tensor::sign, sign},       {&Tensor::floor, floor},
      {&Tensor::ceil, ceil},       {&Tensor::trunc, trunc},
      {&Tensor::round, round},     {&Tensor::isnan, isnan},
      {&Tensor::isinf, isinf},     {&Tensor::isfinite, isfinite},
      {&Tensor::max, max},         {&Tensor::min, min},
      {&Tensor::argmax, argmax},   {&Tensor::argmin, argmin}};
  for (const auto& [member, function] : unary) CHECK(same_bits((x.*member)(), function(x)));
  using Reduction = Tensor (*)(const Tensor&, const Dims&, bool);
  const std::vector<std::pair<Tensor (Tensor::*)(const Shape&, bool) const, Reduction>> reductions{
      {&Tensor::sum, sum},
      {&Tensor::mean, mean},
      {&Tensor::prod, prod},
      {&Tensor::any, any},
      {&Tensor::all, all}};
  for (const auto& [member, function] : reductions) {
    CHECK(same_bits((x.*member)({}, false), function(x, {}, false)));
    CHECK(same_bits((x.*member)({1}, true), function(x, {1}, true)));
  }
  using OfDimension = Tensor (*)(const Tensor&, Int, bool);
  const std::vector<std::pair<Tensor (Tensor::*)(Int, bool) const, OfDimension>> extremes{
      {&Tensor::max, max},
      {&Tensor::min, min},
      {&Tensor::argmax, argmax},
      {&Tensor::argmin, argmin},
      {&Tensor::logsumexp, logsumexp}};
  for (const auto& [member, function] : extremes)
    CHECK(same_bits((x.*member)(-1, true), function(x, -1, true)));
  CHECK(same_bits(x.var({1}, 0, true), var(x, {1}, 0, true)));
  CHECK(same_bits(x.std({1}, 0, true), std(x, {1}, 0, true)));
  CHECK(same_bits(x.norm(3, {0}, true), norm(x, 3, {0}, true)));
  CHECK(same_bits(x.cumsum(1), cumsum(x, 1)));
  CHECK(same_bits(x.cumprod(1), cumprod(x, 1)));
  CHECK(same_bits(x.softmax(0), softmax(x, 0)));
  CHECK(same_bits(x.log_softmax(), log_softmax(x)));
  CHECK(same_bits(x.matmul(y), matmul(x, y)));
  CHECK(same_bits(x.pow(2), pow(x, 2)));
  CHECK(same_bits(x.clamp(0.6, 0.8), clamp(x, 0.6, 0.8)));
  CHECK(same_bits(x.masked_fill(gt(x, 1), 3), masked_fill(x, gt(x, 1), 3)));
  CHECK(same_bits(gt(x, 1).logical_not(), logical_not(gt(x, 1))));
  CHECK(same_bits(x.t(), x.transpose(0, 1)));
  CHECK_THROWS_WITH(x[0].t(), "[t] got f64 [4]; accepted: a matrix");
  CHECK(x.view({1, 3, 1, 4}).squeeze().shape() == Shape{3, 4});
  CHECK(x[0][0].squeeze().shape() == Shape{});
}

TEST_CASE("operators equal the functions for which they stand", "[ops]") {
  const Tensor a = tensor({-3, 0, 2}), b = tensor({2, 0, 2}), m = gt(a, 0), n = lt(a, 0);
  CHECK(same_bits(a == b, eq(a, b)));
  CHECK(same_bits(a != b, ne(a, b)));
  CHECK(same_bits(a == 2.0, eq(a, 2.0)));
  CHECK(same_bits(2.0 == a, eq(a, 2.0)));
  CHECK(same_bits(a != 2.0, ne(a, 2.0)));
  CHECK(same_bits(2.0 != a, ne(a, 2.0)));
  CHECK(same_bits(a % b, remainder(a, b)));
  CHECK(same_bits(a % 2.0, remainder(a, 2.0)));
  CHECK(same_bits(m & n, logical_and(m, n)));
  CHECK(same_bits(m | n, logical_or(m, n)));
  CHECK(same_bits(~m, logical_not(m)));
  CHECK(same_bits(b[tensor({2, 0})], index_select(b, 0, tensor({2, 0}))));
  CHECK(same_bits(b[m], masked_select(b, m)));
}

TEST_CASE("where, maximum and minimum accept numbers, which take the dtype of the tensor",
          "[ops]") {
  const Tensor x = tensor({-1, 5}), mask = tensor<bool>({true, false});
  CHECK(same_bits(where(mask, x, 7), tensor({-1, 7})));
  CHECK(same_bits(where(mask, 7, x), tensor({7, 5})));
  CHECK(same_bits(where(mask, x, 0.5), tensor<float>({-1, 0.5})));
  CHECK(where(ones({2, 2}, {.dtype = boolean}), x, 0).shape() == Shape{2, 2});
  CHECK(same_bits(maximum(x, 2), tensor({2, 5})));
  CHECK(same_bits(minimum(x, 2.5), tensor<float>({-1, 2.5})));
  CHECK(maximum(x.to(bf16), 2).dtype() == bf16);
}

TEST_CASE("unique, searchsorted and argsort", "[ops]") {
  const Tensor x = tensor({3, 1, 3, 2, 1, 3}).view({2, 3});
  const Unique u = unique(x);
  CHECK(same_bits(u.values, tensor({1, 2, 3})));
  CHECK(same_bits(u.values[u.inverse], x));
  CHECK(same_bits(u.counts, tensor({2, 1, 3})));
  CHECK(unique(zeros({0})).values.numel() == 0);
  CHECK(unique(tensor({1.0, double(NAN), double(NAN)})).values.numel() == 3);
  const Tensor row = tensor({1.0, 2.0, 2.0, 4.0}),
               values = tensor({0.0, 2.0, 3.0, 4.0, double(NAN)});
  CHECK(same_bits(searchsorted(row, values), tensor({0, 1, 3, 3, 4})));
  CHECK(same_bits(searchsorted(row, values, true), tensor({0, 3, 3, 4, 4})));
  CHECK_THROWS_WITH(
      searchsorted(row, x),
      "[searchsorted] sorted f64 [4], values i64 [2, 3]; both must have one dtype, and "
      "sorted one dimension");
  CHECK(same_bits(argsort(tensor({2.0, 1.0, 3.0})), tensor({1, 0, 2})));
}

TEST_CASE("compound assignment makes a new tensor, which autograd records", "[ops]") {
  const Tensor w = tensor({2.0, 3.0}).set_requires_grad();
  Tensor loss = scalar(0, {.dtype = f64});
  const Tensor before = loss;
  for (int i = 1; i <= 3; ++i) loss += sum(w * double(i));
  loss *= 2;
  loss -= 1;
  loss /= w[0];
  CHECK(before.item() == 0);
  CHECK(loss.item() == (2 * 30 - 1) / 2.0);
  loss.backward();
  CHECK(w.grad()[1].item() == 6);  // 2 · 6 / w[0]

  Tensor x = arange(3);
  x += 1;
  x *= tensor<int64_t>({1, 2, 3});
  x -= arange(3);
  CHECK(x.to_vector<int64_t>() == std::vector<int64_t>{1, 3, 7});
  x /= 2;
  CHECK(x.dtype() == f32);
  x += full({3}, 0.5, {.dtype = f64});
  x -= x.clone();
  x += ones({2, 3});
  CHECK(same_bits(x, ones({2, 3}, {.dtype = f64})));
}

TEST_CASE("in-place ops equal their functions and keep the dtype", "[ops]") {
  const Tensor mask = tensor(std::vector<bool>{true, false, false, true}, {4});
  for (DType dtype : {f32, f64, bf16}) {
    const Tensor x = fixed_noise({3, 4}, 1, dtype), y = abs(fixed_noise({4}, 2, dtype)) + 0.5;
    const auto changed = [&](auto f) {
      const Tensor z = x.clone();
      const uint32_t version = z.storage().version;
      CHECK(f(z).same(z));
      CHECK(z.storage().version > version);
      return z;
    };
    CHECK(same_bits(changed([](const Tensor& z) { return z.add_(1.5); }), x + 1.5));
    CHECK(same_bits(changed([&](const Tensor& z) { return z.sub_(y); }), x - y));
    CHECK(same_bits(changed([&](const Tensor& z) { return z.sub_(y, 2); }), x - y * 2.0));
    CHECK(same_bits(changed([&](const Tensor& z) { return z.mul_(y); }), x * y));
    CHECK(same_bits(changed([&](const Tensor& z) { return z.div_(y); }), x / y));
    CHECK(same_bits(changed([](const Tensor& z) { return z.div_(3); }), x / 3.0));
    CHECK(same_bits(changed([](const Tensor& z) { return z.clamp_(-0.25, 0.5); }),
                    clamp(x, -0.25, 0.5)));
    CHECK(same_bits(changed([&](const Tensor& z) { return z.masked_fill_(mask, -INFINITY); }),
                    masked_fill(x, mask, -INFINITY)));
    const Tensor z = x.clone();
    z.transpose(0, 1).slice(1, 1).mul_(2);  // a view
    CHECK(same_bits(z.slice(0, 1), x.slice(0, 1) * 2.0));
    CHECK(same_bits(z[0], x[0]));
    z.div_(z);
    CHECK(same_bits(z, ones_like(z)));
  }
  const Tensor ids = arange(4);
  CHECK(ids.add_(1).to_vector<int64_t>() == std::vector<int64_t>{1, 2, 3, 4});
  CHECK(ids.mul_(ids).to_vector<int64_t>() == std::vector<int64_t>{1, 4, 9, 16});
  CHECK(ids.clamp_(2, 10).to_vector<int64_t>() == std::vector<int64_t>{2, 4, 9, 10});
  CHECK(ids.masked_fill_(mask, 0).to_vector<int64_t>() == std::vector<int64_t>{0, 4, 9, 0});
}

TEST_CASE("in-place ops refuse what their tensor cannot hold", "[ops]") {
  const Tensor ids = arange(3);
  CHECK_THROWS_WITH(ids.add_(0.5),
                    Containing("[add_] the result for i64 [3] is f32, not an integer "
                               "tensor; convert the tensor to a floating-point"));
  CHECK_THROWS_WITH(ids.mul_(ones({3})), Containing("[mul_] the result for i64 [3] is f32"));
  CHECK_THROWS_WITH(ids.div_(2), Containing("[div_] the result for i64 [3] is f32"));
  CHECK_THROWS_WITH(ids.div_(ids), Containing("[div_] the result for i64 [3] is f32"));
  CHECK_THROWS_WITH(ids.masked_fill_(ones({3}, {.dtype = boolean}), 0.5),
                    Containing("[masked_fill]"));
  CHECK_THROWS_WITH(ones({3}).mul_(ones({2, 3})), Containing("[broadcast_to]"));
  const Tensor leaf = ones({3}, {.requires_grad = true});
  CHECK_THROWS_WITH(leaf.div_(2), Containing("[div_]"));
  CHECK_THROWS_WITH(ones({1}).expand({3}).clamp_(0, 1), Containing("[clamp_]"));
  NoGrad guard;
  CHECK(leaf.div_(2)[0].item() == 0.5);
}

TEST_CASE("a stream prints values with its precision, dtype and shape", "[ops]") {
  std::ostringstream out;
  out << tensor({1.0f / 3, 2.0f}) << '\n'
      << std::setprecision(3) << scalar(M_PI) << '\n'
      << arange(4).view({2, 2}) << '\n'
      << Tensor() << ' ' << Shape{2, 3};
  CHECK(out.str() ==
        "[0.333333, 2]  f32 [2]\n3.14  f32 []\n[[0, 1],\n [2, 3]]  i64 [2, 2]\nundefined [2, 3]");
  CHECK(to_string(scalar(M_PI, {.dtype = f64}), 17) == "3.1415926535897931  f64 []");
  CHECK(to_string(scalar(-1.0 / 3, {.dtype = f64}), 99) == "-0.33333333333333331  f64 []");
  CHECK(to_string(scalar(123), 0) == "1e+02  f32 []");
}

}  // namespace stretto
