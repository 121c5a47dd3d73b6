// Losses where formulas written plainly break: at the ends of their domain, and beyond what exp
// holds. What holds of them everywhere is in the op table.
#include "ops/loss.h"

#include <cmath>

#include "autograd/tape.h"
#include "ops/create.h"
#include "ops/elementwise.h"
#include "ops/reduce.h"
#include "ops/softmax.h"
#include "tests/support/catch.h"
#include "tests/support/compare.h"
#include "tests/support/gradcheck.h"

using namespace stretto;
using testing::fixed_leaf;
using testing::fixed_noise;
using testing::same_bits;
using testing::worst_error;

namespace {

constexpr Reduction none = Reduction::none;

double slope_at(const std::function<Tensor(const Tensor&)>& loss, double at, DType dtype = f64) {
  const Tensor x = scalar(at, {.dtype = dtype}).set_requires_grad();
  loss(x).backward();
  return x.grad().item();
}

}  // namespace

TEST_CASE("nll_loss of log_softmax is cross_entropy") {
  const Tensor x = fixed_noise({2, 5, 7}, 1) * 4.0;
  const Tensor ids = tensor<int64_t>({0, 6, 3, -100, 2, 2, 5, 1, -100, 0}, {2, 5});
  for (const Reduction r : {Reduction::mean, Reduction::sum, none})
    CHECK(worst_error(nll_loss(log_softmax(x, -1), ids, {.reduction = r}),
                      cross_entropy(x, ids, {.reduction = r})) < 1e-14);
}

TEST_CASE("nll_loss: what is ignored may be impossible, and nothing has the mean 0") {
  const Tensor x = full({2, 3}, -INFINITY, {.dtype = f64}).set_requires_grad();
  const Tensor loss = nll_loss(x, tensor<int64_t>({-100, -100}));
  CHECK(loss.item() == 0);
  loss.backward();
  CHECK(equal(x.grad(), zeros({2, 3}, {.dtype = f64})));
  CHECK(nll_loss(x.detach(), tensor<int64_t>({-100, 1})).item() == INFINITY);
  CHECK(nll_loss(empty({0, 4}), empty({0}, {.dtype = i64})).item() == 0);
}

TEST_CASE("losses of numbers: the mean over nothing is 0") {
  const Tensor x = empty({0, 3}).set_requires_grad();
  for (const auto loss : {mse_loss, binary_cross_entropy, binary_cross_entropy_with_logits}) {
    CHECK(loss(x, empty({0, 3}), Reduction::mean).item() == 0);
    CHECK(loss(x, empty({0, 3}), none).shape() == Shape{0, 3});
  }
}

TEST_CASE("binary_cross_entropy at 0 and 1 is finite, with its gradients") {
  for (const DType dtype : {f64, f32, bf16})
    for (const double target : {0.0, 1.0}) {
      const Tensor t = scalar(target, {.dtype = dtype});
      const auto loss = [&](const Tensor& p) { return binary_cross_entropy(p, t); };
      CHECK(loss(scalar(target, {.dtype = dtype})).item() == 0);
      CHECK(loss(scalar(1 - target, {.dtype = dtype})).item() == 100);
      const double sign = target == 1 ? -1 : 1;
      CHECK(slope_at(loss, target, dtype) == sign);
      CHECK(slope_at(loss, 1 - target, dtype) == Approx(sign * 1e12).epsilon(0.01));
    }
  for (const double p : {-0.1, 1.1})
    CHECK_THROWS_WITH(
        binary_cross_entropy(full({1}, p), ones({1})),
        Containing("must lie in [0, 1]; of logits: binary_cross_entropy_with_logits"));
  CHECK(std::isnan(binary_cross_entropy(full({1}, NAN), ones({1})).item()));
}

TEST_CASE("binary_cross_entropy_with_logits does not cancel or overflow") {
  for (const DType dtype : {f64, f32}) {
    const double u = dtype == f64 ? 0x1p-53 : 0x1p-24;
    for (const double x : {-80.0, -20.0, -3.0, 0.0, 3.0, 20.0, 80.0}) {
      const Tensor t = ones({}, {.dtype = dtype});
      const auto loss = [&](const Tensor& v) { return binary_cross_entropy_with_logits(v, t); };
      // −log σ(x) = log(1 + e^−x), also where it is far below x's own rounding.
      CHECK(std::fabs(loss(scalar(x, {.dtype = dtype})).item() - std::log1p(std::exp(-x))) <=
            8 * u * std::log1p(std::exp(-x)));
      CHECK(std::fabs(slope_at(loss, x, dtype) + 1 / (1 + std::exp(x))) <=
            8 * u / (1 + std::exp(x)));
    }
    for (const double x : {-1e4, 1e4}) {
      const auto loss = [&](double target) {
        return binary_cross_entropy_with_logits(scalar(x, {.dtype = dtype}),
                                                scalar(target, {.dtype = dtype}))
            .item();
      };
      CHECK(loss(x > 0 ? 1 : 0) == 0);
      CHECK(loss(x > 0 ? 0 : 1) == 1e4);
    }
  }
  const Tensor x = fixed_noise({3, 4}, 1) * 3.0, t = abs(fixed_noise({3, 4}, 2));
  CHECK(worst_error(binary_cross_entropy_with_logits(x, t, none),
                    binary_cross_entropy(sigmoid(x), t, none)) < 1e-13);
}

TEST_CASE("losses have gradients in both arguments, for operands of any layout") {
  for (const auto loss : {mse_loss, binary_cross_entropy, binary_cross_entropy_with_logits})
    for (const Reduction r : {Reduction::mean, none}) {
      const auto transposed = [&](const Tensors& in) {
        return loss(sigmoid(in[0].transpose(0, 1)), sigmoid(in[1].transpose(0, 1)), r);
      };
      testing::gradcheck(transposed, {fixed_leaf({3, 4}, 1), fixed_leaf({3, 4}, 2)});
    }
}
