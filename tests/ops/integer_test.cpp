// Integers, masks and C++ numbers: which ops keep the dtype, which return a floating one, what is
// exact, and what is rejected [ops/elementwise.h, ops/create.h, core/tensor.h].
#include <cmath>
#include <limits>

#include "ops/create.h"
#include "ops/elementwise.h"
#include "ops/indexing.h"
#include "ops/reduce.h"
#include "ops/view.h"
#include "tests/support/catch.h"

namespace stretto {
namespace {

constexpr double inf = std::numeric_limits<double>::infinity();
constexpr double nan = std::numeric_limits<double>::quiet_NaN();
constexpr int64_t most = std::numeric_limits<int64_t>::max();
constexpr int64_t least = std::numeric_limits<int64_t>::min();
constexpr int64_t above_2_53 = (int64_t(1) << 53) + 1;

using Doubles = std::vector<double>;
using Integers = std::vector<int64_t>;
using Bytes = std::vector<uint8_t>;

Tensor ids(const Integers& values) { return tensor(values, {int64_t(values.size())}); }

}  // namespace

TEST_CASE("masks are combined as truth values, not as integers", "[ops]") {
  const Tensor a = tensor<uint8_t>({16, 128, 1, 0, 0, 255});
  const Tensor b = tensor<uint8_t>({16, 2, 1, 7, 0, 0});
  for (const DType dtype : {u8, boolean})
    for (const bool swapped : {false, true}) {
      const Tensor x = swapped ? b : a, y = (swapped ? a : b).to(dtype);
      CHECK(logical_and(x, y).dtype() == boolean);
      CHECK(logical_and(x, y).to_vector<uint8_t>() == Bytes{1, 1, 1, 0, 0, 0});
      CHECK(logical_or(x, y).to_vector<uint8_t>() == Bytes{1, 1, 1, 1, 0, 1});
    }
  CHECK(logical_not(a).to_vector<uint8_t>() == Bytes{0, 0, 0, 1, 1, 0});
  CHECK(logical_and(a.unsqueeze(1), tensor<bool>({true, false})).shape() == Shape{6, 2});
  CHECK(where(a, ids({1, 1, 1, 1, 1, 1}), ids({0, 0, 0, 0, 0, 0})).to_vector<int64_t>() ==
        Integers{1, 1, 1, 0, 0, 1});
}

TEST_CASE("division of integers is floating, whatever the divisor", "[ops]") {
  for (const DType dtype : {i64, i32, u8}) {
    INFO(name(dtype));
    const Tensor x = tensor<int64_t>({7, 0}).to(dtype);
    for (const double c : {2.0, 1.0, 0.5, 3.0}) {
      CHECK((x / c).dtype() == f32);
      CHECK((x / c).to_vector<float>() == std::vector<float>{float(7 / c), 0});
    }
    CHECK((x / 0.0).to_vector<double>()[0] == inf);
    CHECK(std::isnan((x / 0.0).to_vector<double>()[1]));
    CHECK((x / inf).to_vector<double>() == Doubles{0, 0});
    CHECK((x * inf).dtype() == f32);
    CHECK((x * inf).to_vector<double>()[0] == inf);
    CHECK((x + -inf).to_vector<double>() == Doubles{-inf, -inf});
    CHECK((x * 1e20).dtype() == f32);  // outside the range of i64
    CHECK((x + nan).dtype() == f32);
    CHECK((x / x).dtype() == f32);
  }
  CHECK((ones({2}, {.dtype = boolean}) / 2.0).to_vector<float>() == std::vector<float>{0.5, 0.5});
}

TEST_CASE("division has the common dtype of its operands", "[ops]") {
  for (const DType integer : {i64, i32, u8, boolean}) {
    const Tensor x = ones({2}, {.dtype = integer});
    for (const DType floating : {f32, f64, bf16}) {
      const Tensor y = ones({2}, {.dtype = floating});
      CHECK((x / y).dtype() == (x + y).dtype());
      CHECK((y / x).dtype() == (y + x).dtype());
    }
  }
  const Tensor one = ones({1}, {.dtype = f64});
  CHECK((ids({123456789}) / one).item() == 123456789);
  CHECK((ids({123456789}).to(i32) / one).item() == 123456789);
  CHECK((one / ids({123456789})).item() == 1.0 / 123456789);
}

TEST_CASE("a quotient is rounded once", "[ops]") {
  Doubles values;
  for (int i = -999; i < 1000; ++i) values.push_back(i);
  values.insert(values.end(), {1e-40, 3e-39, 1e38, 0.1, inf});
  const Tensor x = tensor(values, {int64_t(values.size())});
  for (const double c : {3.0, -7.0, 1e-40, 49.0, 1e38, 0.1}) {
    INFO("divided by " << c);
    const std::vector<double> wide = (x / c).to_vector<double>();
    const std::vector<float> narrow = (x.to(f32) / c).to_vector<float>();
    int wrong = 0;
    for (size_t i = 0; i < values.size(); ++i) {
      wrong += wide[i] != values[i] / c;
      wrong += narrow[i] != float(values[i]) / float(c);
    }
    CHECK(wrong == 0);
  }
  CHECK((scalar(1e-40) / 1e-40).item() == 1);
  const Tensor leaf = ones({2}).set_requires_grad();
  sum(leaf / 3.0).backward();
  CHECK(leaf.grad().to_vector<float>() == std::vector<float>{1.0f / 3.0f, 1.0f / 3.0f});
}

TEST_CASE("integers are clamped to the integers between the bounds", "[ops]") {
  const Tensor x = ids({-3, 0, 1, 2, 3, most, least});
  CHECK(clamp(x, 0.5, 2.5).to_vector<int64_t>() == Integers{1, 1, 1, 2, 2, 2, 1});
  CHECK(clamp(x, -0.5, 0.5).to_vector<int64_t>() == Integers{0, 0, 0, 0, 0, 0, 0});
  CHECK(clamp(x, -inf, 1.5).to_vector<int64_t>() == Integers{-3, 0, 1, 1, 1, 1, least});
  CHECK(clamp(x, -1e300, 1e300).to_vector<int64_t>() == x.to_vector<int64_t>());
  CHECK(clamp(x, 2, 2).dtype() == i64);
  const Tensor bytes = tensor<uint8_t>({0, 7, 255});
  CHECK(clamp(bytes, -5, 1e9).to_vector<uint8_t>() == Bytes{0, 7, 255});
  CHECK(clamp(bytes, 0.5, 254.5).to_vector<uint8_t>() == Bytes{1, 7, 254});
  CHECK_THROWS_WITH(clamp(x, 0.3, 0.7), "[clamp] no i64 lies between 0.3 and 0.7");
  CHECK_THROWS_WITH(clamp(bytes, 256, 300), "[clamp] no u8 lies between 256 and 300");
  CHECK_THROWS_WITH(clamp(x, 1e19, inf), Containing("[clamp] no i64 lies between"));
  CHECK_THROWS_WITH(clamp(x, nan, 1), Containing("[clamp] low nan"));
  CHECK_THROWS_WITH(clamp(ones({1}), 2, 1), Containing("[clamp] low 2"));
}

TEST_CASE("a value that the dtype cannot represent is rejected", "[ops]") {
  Tensor x = ids({1, 2});
  const Tensor mask = tensor<bool>({true, false});
  for (const double value : {inf, -inf, nan, 0.5, 0x1p63, -1e300}) {
    INFO(value);
    CHECK_THROWS_WITH(masked_fill(x, mask, value), Containing("i64 cannot represent"));
    CHECK_THROWS_WITH(full({2}, value, {.dtype = i64}), Containing("[full] i64 cannot represent"));
    CHECK_THROWS_WITH(scalar(value, {.dtype = i32}), Containing("[scalar] i32 cannot represent"));
    CHECK_THROWS_WITH(x.fill_(value), Containing("[fill_] i64 cannot represent"));
    CHECK_THROWS_WITH(pad(x, 0, 1, 1, value), Containing("i64 cannot represent"));
  }
  CHECK_THROWS_WITH(full({2}, 256, {.dtype = u8}), "[full] u8 cannot represent 256");
  CHECK_THROWS_WITH(full({2}, -1, {.dtype = u8}), "[full] u8 cannot represent -1");
  CHECK_THROWS_WITH(full({2}, 0x1p31, {.dtype = i32}), Containing("[full] i32 cannot represent"));
  CHECK(x.to_vector<int64_t>() == Integers{1, 2});
  CHECK(full({1}, -0x1p63, {.dtype = i64}).to_vector<int64_t>() == Integers{least});
  CHECK(masked_fill(x, mask, -9).to_vector<int64_t>() == Integers{-9, 2});
  CHECK(full({2}, 0.5, {.dtype = boolean}).to_vector<uint8_t>() == Bytes{1, 1});  // true
  CHECK_THROWS_WITH(arange(0, 1e300, 1e299, {.dtype = i64}), Containing("[arange]"));
  CHECK_THROWS_WITH(arange(0, 1e300), Containing("[arange]"));
  CHECK_THROWS_WITH(arange(300, {.dtype = u8}), Containing("[arange]"));
  CHECK_THROWS_WITH(x.mul_(0.5), Containing("[mul_]"));
  CHECK(x.mul_(3).to_vector<int64_t>() == Integers{3, 6});
}

TEST_CASE("integers are compared with C++ numbers exactly", "[ops]") {
  const Tensor x = ids({above_2_53 - 1, above_2_53, least, most, -1, 0});
  CHECK(eq(x, 0x1p53).to_vector<uint8_t>() == Bytes{1, 0, 0, 0, 0, 0});
  CHECK(ne(x, 0x1p53).to_vector<uint8_t>() == Bytes{0, 1, 1, 1, 1, 1});
  CHECK(gt(x, 0x1p53).to_vector<uint8_t>() == Bytes{0, 1, 0, 1, 0, 0});
  CHECK(le(x, 0x1p53).to_vector<uint8_t>() == Bytes{1, 0, 1, 0, 1, 1});
  CHECK(eq(x, 0x1p63).to_vector<uint8_t>() == Bytes{0, 0, 0, 0, 0, 0});
  CHECK(lt(x, 0x1p63).to_vector<uint8_t>() == Bytes{1, 1, 1, 1, 1, 1});
  CHECK(ge(x, -0x1p63).to_vector<uint8_t>() == Bytes{1, 1, 1, 1, 1, 1});
  CHECK(gt(x, -0x1p63).to_vector<uint8_t>() == Bytes{1, 1, 0, 1, 1, 1});
  for (const DType dtype : {i64, i32, u8, boolean})
    for (const double c : {-inf, -1e300, -0.5, 0.0, 0.5, 1.0, 1.5, 2.0, inf, nan}) {
      INFO(name(dtype) << " and " << c);
      const Tensor small = tensor<int64_t>({0, 1}).to(dtype);
      CHECK(eq(small, c).to_vector<uint8_t>() == Bytes{0 == c, 1 == c});
      CHECK(ne(small, c).to_vector<uint8_t>() == Bytes{0 != c, 1 != c});
      CHECK(lt(small, c).to_vector<uint8_t>() == Bytes{0 < c, 1 < c});
      CHECK(le(small, c).to_vector<uint8_t>() == Bytes{0 <= c, 1 <= c});
      CHECK(gt(small, c).to_vector<uint8_t>() == Bytes{0 > c, 1 > c});
      CHECK(ge(small, c).to_vector<uint8_t>() == Bytes{0 >= c, 1 >= c});
    }
}

TEST_CASE("item() of an integer is exact or an error", "[core]") {
  for (const int64_t value : {above_2_53, most, least, -above_2_53, int64_t(7)})
    CHECK(ids({value}).item<int64_t>() == value);
  CHECK(ids({least}).item() == -0x1p63);
  CHECK(ids({above_2_53 - 1}).item() == 0x1p53);
  CHECK_THROWS_WITH(ids({above_2_53}).item(), Containing("[item] 9007199254740993"));
  CHECK_THROWS_WITH(ids({most}).item(), Containing("item<int64_t>()"));
  CHECK_THROWS_WITH(ids({1, 2}).item<int64_t>(),
                    "[item] the tensor must have one element; got i64 [2]");
  CHECK(scalar(2.5).item<float>() == 2.5f);
  CHECK(scalar(-3).item<int64_t>() == -3);
  CHECK(to_string(ids({above_2_53, least})) == "[9007199254740993, -9223372036854775808]  i64 [2]");
}

TEST_CASE("selection ops keep bool", "[ops]") {
  const Tensor all = ones({3, 3}, {.dtype = boolean});
  CHECK(triu(all, 1).dtype() == boolean);
  CHECK(triu(all, 1).to_vector<uint8_t>() == Bytes{0, 1, 1, 0, 0, 1, 0, 0, 0});
  CHECK(tril(all).to_vector<uint8_t>() == Bytes{1, 0, 0, 1, 1, 0, 1, 1, 1});
  CHECK(masked_fill(all, triu(all), 0).dtype() == boolean);
  CHECK(where(all, all, logical_not(all)).dtype() == boolean);
  CHECK(masked_fill(zeros({3, 3}), triu(all, 1), -inf).to_vector<double>()[1] == -inf);  // a mask
  CHECK(where(all, all, ids({1, 2, 3})).dtype() == i64);
  CHECK((all + all).dtype() == i64);  // arithmetic promotes bool to i64
}

TEST_CASE("integer arithmetic wraps around", "[ops]") {
  CHECK((ids({most}) + ids({1})).to_vector<int64_t>() == Integers{least});
  CHECK((ids({least}) - ids({1})).to_vector<int64_t>() == Integers{most});
  CHECK((ids({most}) * ids({2})).to_vector<int64_t>() == Integers{-2});
  CHECK((ids({most}) + 1.0).to_vector<int64_t>() == Integers{least});
  CHECK((ids({most}) * 2.0).to_vector<int64_t>() == Integers{-2});
  CHECK((-ids({least})).to_vector<int64_t>() == Integers{least});
  CHECK(abs(ids({least, -5})).to_vector<int64_t>() == Integers{least, 5});
  CHECK((tensor<int32_t>({INT32_MAX}) + tensor<int32_t>({1})).to_vector<int32_t>() ==
        std::vector<int32_t>{INT32_MIN});
  CHECK((tensor<int32_t>({65536}) * tensor<int32_t>({65536})).to_vector<int32_t>() ==
        std::vector<int32_t>{0});
  CHECK((tensor<uint8_t>({200}) + tensor<uint8_t>({100})).to_vector<uint8_t>() == Bytes{44});
  CHECK(cumsum(ids({most, 1, 1}), 0).to_vector<int64_t>() == Integers{most, least, least + 1});
  CHECK(cumsum(ids({most, 7, 1, 7}).view({2, 2}), 0).to_vector<int64_t>() ==
        Integers{most, 7, least, 14});
  CHECK(sum(ids({most, most, 3})).to_vector<int64_t>() == Integers{1});
  CHECK(sum(full({5, 40}, 0x1p62, {.dtype = i64}), {0}).to_vector<int64_t>()[7] ==
        (int64_t(1) << 62));
  CHECK(sum(full({40, 5}, 0x1p62, {.dtype = i64}), {0}).to_vector<int64_t>()[3] == 0);
  CHECK(sum(full({5, 40}, 0x1p62, {.dtype = i64}), {1}).to_vector<int64_t>()[3] == 0);
  CHECK(scatter_add(ids({most}), 0, ids({0, 0}), ids({1, 1})).to_vector<int64_t>() ==
        Integers{least + 1});
  CHECK(tensor<int64_t>({int64_t(1) << 32, 256}).to(i32).to_vector<int32_t>() ==
        std::vector<int32_t>{0, 256});
}

TEST_CASE("floating values out of range saturate when converted to integers", "[ops]") {
  const Doubles values = {-1.75, 2.5, 300.7, -inf, inf, nan, 1e300, -1e300, 0x1p63, 0x1p31, -0.9};
  const Tensor x = tensor(values, {int64_t(values.size())});
  CHECK(x.to(i64).to_vector<int64_t>() ==
        Integers{-1, 2, 300, least, most, 0, most, least, most, int64_t(1) << 31, 0});
  CHECK(x.to(i32).to_vector<int64_t>() == Integers{-1, 2, 300, INT32_MIN, INT32_MAX, 0, INT32_MAX,
                                                   INT32_MIN, INT32_MAX, INT32_MAX, 0});
  CHECK(x.to(u8).to_vector<int64_t>() == Integers{0, 2, 255, 0, 255, 0, 255, 0, 255, 255, 0});
  CHECK(x.to(boolean).to_vector<int64_t>() == Integers{1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1});
  for (const DType dtype : {f32, bf16}) {
    const Tensor y = x.to(dtype);
    CHECK(y.to(i64).to_vector<int64_t>()[3] == least);
    CHECK(y.to(i32).to_vector<int64_t>()[4] == INT32_MAX);
    CHECK(y.to(u8).to_vector<int64_t>()[5] == 0);
    CHECK(y.to_vector<int64_t>()[6] == most);
    CHECK(y.to_vector<int32_t>()[7] == INT32_MIN);
  }
  Tensor ints = ids({0, 0});
  ints.copy_(tensor<double>({nan, 1e30}));
  CHECK(ints.to_vector<int64_t>() == Integers{0, most});
  // A transposed copy uses another loop.
  const Tensor wide = full({40, 40}, 1e30).transpose(0, 1);
  CHECK(wide.to(u8).to_vector<int64_t>()[77] == 255);
}

TEST_CASE("the sum of a million rows added to one row does not drift", "[ops]") {
  const int64_t n = 1000000;
  const Tensor same = zeros({n}, {.dtype = i64});
  const Tensor g = full({n, 1}, 0.1);  // summed in order in f32, the error would be 1 %
  const double exact = double(n) * double(0.1f);
  const Tensor table = zeros({2, 1}).set_requires_grad();
  embedding(table, same).backward(g);
  CHECK(table.grad().to_vector<double>()[0] == Approx(exact).epsilon(1e-7));
  CHECK(scatter_add(zeros({2, 1}), 0, same.unsqueeze(1), g).to_vector<double>()[0] ==
        Approx(exact).epsilon(1e-7));
  const Tensor x = zeros({1, 2}).set_requires_grad();
  gather(x, 1, zeros({1, n}, {.dtype = i64})).backward(g.view({1, n}));
  CHECK(x.grad().to_vector<double>()[0] == Approx(exact).epsilon(1e-7));
}

}  // namespace stretto
