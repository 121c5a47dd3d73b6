// Members of Tensor that call functions, compound assignment, in-place ops and printing
// [core/tensor.h, ops/elementwise.h].
#include <cmath>
#include <iomanip>
#include <sstream>
#include <vector>

#include "autograd/tape.h"
#include "ops/create.h"
#include "ops/elementwise.h"
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
  CHECK(same_bits(x.sum(), sum(x)));
  CHECK(same_bits(x.sum({1}, true), sum(x, {1}, true)));
  CHECK(same_bits(x.mean(), mean(x)));
  CHECK(same_bits(x.mean({0}), mean(x, {0})));
  CHECK(same_bits(x.max(), max(x)));
  CHECK(same_bits(x.max(1, true), max(x, 1, true)));
  CHECK(same_bits(x.min(), min(x)));
  CHECK(same_bits(x.min(0), min(x, 0)));
  CHECK(same_bits(x.argmax(), argmax(x)));
  CHECK(same_bits(x.argmax(-1), argmax(x, -1)));
  CHECK(same_bits(x.softmax(), softmax(x)));
  CHECK(same_bits(x.softmax(0), softmax(x, 0)));
  CHECK(same_bits(x.matmul(y), matmul(x, y)));
  CHECK(same_bits(x.pow(2), pow(x, 2)));
  CHECK(same_bits(x.exp(), exp(x)));
  CHECK(same_bits(x.log(), log(x)));
  CHECK(same_bits(x.sqrt(), sqrt(x)));
  CHECK(same_bits((-x).abs(), x));
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
