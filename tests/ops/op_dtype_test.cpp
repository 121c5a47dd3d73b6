// Which dtypes elementwise ops accept and return: promotion, C++ numbers, integers, gradients of
// mixed operands [ops/elementwise.h].
#include <functional>
#include <tuple>

#include "autograd/accumulate.h"
#include "autograd/tape.h"
#include "core/storage.h"
#include "ops/attention/attention.h"
#include "ops/attention/gated_linear_attention.h"
#include "ops/channel_norm.h"
#include "ops/conv/pool.h"
#include "ops/create.h"
#include "ops/elementwise.h"
#include "ops/fft/fft_conv.h"
#include "ops/reduce.h"
#include "tests/support/catch.h"
#include "tests/support/compare.h"
#include "tests/support/gradcheck.h"

namespace stretto {

using testing::same_bits;

namespace {

constexpr DType all_dtypes[] = {f32, f64, bf16, i64, i32, u8, boolean};

Tensor one(DType dtype) { return ones({2}, {.dtype = dtype}); }

}  // namespace

TEST_CASE("operands are promoted to a common dtype", "[ops]") {
  CHECK(promote(f32, i64) == f32);
  CHECK(promote(bf16, i64) == bf16);
  CHECK(promote(bf16, f32) == f32);
  CHECK(promote(f32, f64) == f64);
  CHECK(promote(u8, i32) == i32);
  CHECK(promote(i32, i64) == i64);
  CHECK(promote(boolean, u8) == u8);
  for (DType a : all_dtypes) {
    CHECK(promote(a, a) == a);
    for (DType b : all_dtypes) {
      INFO(name(a) << " and " << name(b));
      CHECK(promote(a, b) == promote(b, a));
      const DType common = promote(a, b) == boolean ? i64 : promote(a, b);
      CHECK((one(a) + one(b)).dtype() == common);
      CHECK((one(a) * one(b)).dtype() == common);
      CHECK((one(a) - one(b)).to_vector<double>() == std::vector<double>{0, 0});
      CHECK(maximum(one(a), one(b)).dtype() == common);
      CHECK((one(a) / one(b)).dtype() == (is_floating(common) ? common : f32));
      CHECK(eq(one(a), one(b)).dtype() == boolean);
      CHECK(eq(one(a), one(b)).to_vector<uint8_t>() == std::vector<uint8_t>{1, 1});
      CHECK(where(one(boolean), one(a), one(b)).dtype() == promote(a, b));
    }
  }
}

TEST_CASE("ops that compute bf16 in f32 save their inputs in bf16", "[ops]") {
  if (default_device().is_cuda()) return;
  // The bytes that an op saves in addition to its inputs.
  const auto saved = [](auto f, const std::vector<Shape>& shapes, DType dtype) {
    Tensors x;
    for (const Shape& shape : shapes)
      x.push_back(testing::fixed_noise(shape, x.size(), dtype).set_requires_grad());
    const int64_t before = memory_stats().live;
    const Tensor y = f(x);
    return memory_stats().live - before - y.numel() * int64_t(item_size(dtype));
  };
  const Shape heads{1, 2, 300, 16}, image{2, 8, 30, 30};
  using F = std::function<Tensor(const Tensors&)>;
  const std::tuple<const char*, F, std::vector<Shape>> ops[] = {
      {"attention",
       [](const Tensors& x) { return attention(x[0], x[1], x[2]); },
       {heads, heads, heads}},
      {"gated_linear_attention",
       [](const Tensors& x) { return gated_linear_attention(x[0], x[1], x[2], {}); },
       {heads, heads, heads}},
      {"fft_conv", [](const Tensors& x) { return fft_conv(x[0], x[1]); }, {{4, 500}, {4, 500}}},
      {"avg_pool2d", [](const Tensors& x) { return avg_pool2d(x[0], 2); }, {image}},
      {"group_norm", [](const Tensors& x) { return group_norm(x[0], 2); }, {image}},
      {"norm", [](const Tensors& x) { return norm(x[0]); }, {image}}};
  for (const auto& [name, f, shapes] : ops) {
    INFO(name);
    CHECK(saved(f, shapes, bf16) <= saved(f, shapes, f32) + 4096);
  }
}

TEST_CASE("a C++ number has the dtype of the tensor", "[ops]") {
  for (DType dtype : {f32, f64, bf16, i64, i32, u8}) {
    INFO(name(dtype));
    CHECK((one(dtype) + 2.0).dtype() == dtype);
    CHECK((one(dtype) * 3.0).dtype() == dtype);
    CHECK((one(dtype) * 3.0).to_vector<double>() == std::vector<double>{3, 3});
    CHECK((one(dtype) + 0.5).dtype() == (is_floating(dtype) ? dtype : f32));
    CHECK((one(dtype) + 0.5).to_vector<double>() == std::vector<double>{1.5, 1.5});
    CHECK((1.0 / one(dtype)).dtype() == (is_floating(dtype) ? dtype : f32));
  }
  CHECK((one(boolean) + 1.0).dtype() == i64);
}

TEST_CASE("arithmetic on large integers is exact", "[ops]") {
  const int64_t big = (int64_t(1) << 60) + 1;
  const Tensor x = tensor<int64_t>({big, -big});
  CHECK((x + x).to_vector<int64_t>() == std::vector<int64_t>{2 * big, -2 * big});
  CHECK((x * 2.0).to_vector<int64_t>() == std::vector<int64_t>{2 * big, -2 * big});
  CHECK((x + 1.0).to_vector<int64_t>() == std::vector<int64_t>{big + 1, 1 - big});
  CHECK((-x).to_vector<int64_t>() == std::vector<int64_t>{-big, big});
  CHECK(abs(x).to_vector<int64_t>() == std::vector<int64_t>{big, big});
  CHECK(sign(x).to_vector<int64_t>() == std::vector<int64_t>{1, -1});
  CHECK(eq(x, x + 1.0).to_vector<uint8_t>() == std::vector<uint8_t>{0, 0});
  CHECK(clamp(x, -2, 2).to_vector<int64_t>() == std::vector<int64_t>{2, -2});
}

TEST_CASE("functions such as exp return f32 for integers", "[ops]") {
  for (DType dtype : {i64, i32, u8, boolean}) {
    INFO(name(dtype));
    for (auto f : {exp, log, sin, sqrt, tanh, gelu, square, rsqrt}) {
      CHECK(f(one(dtype)).dtype() == f32);
      CHECK(f(one(dtype)).to_vector<float>() == f(one(f32)).to_vector<float>());
    }
    CHECK(div(one(dtype), one(dtype)).dtype() == f32);
    CHECK(pow(one(dtype), 2).dtype() == f32);
  }
  CHECK(abs(tensor<int32_t>({-3, 4})).dtype() == i32);
  CHECK(sign(tensor<int32_t>({-3, 0, 4})).to_vector<int32_t>() == std::vector<int32_t>{-1, 0, 1});
  CHECK(heaviside(tensor<int64_t>({-3, 0, 4})).to_vector<int64_t>() ==
        std::vector<int64_t>{0, 0, 1});
}

TEST_CASE("gradients have the dtype of their operand", "[ops]") {
  for (auto f : {add, sub, mul, div, maximum}) {
    Tensor a = ones({3}, {.dtype = f32, .requires_grad = true});
    Tensor b = full({3}, 2, {.dtype = f64, .requires_grad = true});
    Tensor c = full({1}, 4, {.dtype = bf16, .requires_grad = true});
    const Tensor y = f(f(a, b), c);
    CHECK(y.dtype() == f64);
    sum(y).backward();
    CHECK(a.grad().dtype() == f32);
    CHECK(b.grad().dtype() == f64);
    CHECK(c.grad().dtype() == bf16);
    CHECK(c.grad().shape() == Shape{1});
  }
  Tensor x = ones({2}, {.requires_grad = true});
  sum(x.to(bf16) * arange(2)).backward();
  CHECK(x.grad().to_vector<float>() == std::vector<float>{0, 1});
  CHECK(!eq(x, x).requires_grad());
  CHECK(!x.to(i64).requires_grad());
  CHECK(!heaviside(x).requires_grad());
}

TEST_CASE("bf16 is added to f32 as it is read", "[ops]") {
  uint64_t stream = 0;
  for (const Shape& shape : {Shape{}, Shape{0}, Shape{7}, Shape{70, 33}, Shape{3, 5000}}) {
    for (const bool by_columns : {false, true}) {
      const auto drawn = [&] {
        const Tensor x = randn(shape, RandomKey{4, ++stream}, {.dtype = bf16});
        return by_columns && shape.dim() == 2 ? x.transpose(0, 1).contiguous().transpose(0, 1) : x;
      };
      INFO(str(shape, by_columns ? " by columns" : ""));
      const Tensor a = drawn(), b = drawn(), sum = randn(shape, RandomKey{4, ++stream});
      Tensor exact = a.to(f32);
      Tensors terms{a};
      while (terms.size() < most_bf16_terms) {
        terms.push_back(terms.size() == 1 ? b : drawn());
        exact = exact + terms.back().to(f32);
        CHECK(same_bits(add_bf16(terms, f32), exact));
        CHECK(same_bits(add_bf16(terms, bf16), exact.to(bf16)));
      }
      CHECK(same_bits(sum.clone().add_(a, 0.3), sum.clone().add_(a.to(f32), 0.3)));
    }
  }
  const Tensor row = randn({33}, RandomKey{4, 99}, {.dtype = bf16}), zero = zeros({5, 33});
  CHECK(same_bits(zero.add_(row), row.to(f32).expand({5, 33}).contiguous()));
  CHECK_THROWS_WITH(add_bf16({row, zeros({33})}, f32),
                    Containing("[add_bf16] got bf16 [33] and f32 [33]; accepted: bf16"));
  CHECK_THROWS_WITH(add_bf16({row, row.slice(0, 1)}, bf16), Containing("bf16 [32]; accepted"));
  CHECK_THROWS_WITH(add_bf16({row}, bf16), Containing("1 terms; accepted: 2 to 4"));
  CHECK_THROWS_WITH(add_bf16({row, row}, f64), Containing("a sum in f64"));
}

TEST_CASE("in-place changes keep dtype and shape, and increment the version", "[ops]") {
  for (DType dtype : {f32, f64, bf16}) {
    INFO(name(dtype));
    Tensor x = zeros({4, 3}, {.dtype = dtype});
    const uint32_t version = x.storage().version;
    const Tensor column = x.slice(1, 1, 2);
    Tensor(column).fill_(2);  // through a view
    CHECK(sum(x).item() == 8);
    x.add_(tensor<double>({1, 2, 3}), 0.5);
    CHECK(x.select(0, 3).to_vector<double>() == std::vector<double>{0.5, 3, 1.5});
    x.mul_(2);
    CHECK(x.select(0, 0).to_vector<double>() == std::vector<double>{1, 6, 3});
    x.copy_(tensor<int64_t>({7, 8, 9}));
    CHECK(x.select(0, 2).to_vector<double>() == std::vector<double>{7, 8, 9});
    CHECK(x.dtype() == dtype);
    CHECK(x.storage().version == version + 4);
    CHECK_THROWS_WITH(x.add_(ones({2, 3})), Containing("[broadcast_to]"));
    CHECK_THROWS_WITH(x.copy_(ones({2, 4, 3})), Containing("[broadcast_to]"));
  }
  Tensor ids = arange(3);
  CHECK_THROWS_WITH(ids.add_(ids),
                    Containing("[add_] got i64 [3]; accepted: a floating-point tensor"));
}

}  // namespace stretto
