// batch_norm(): the running statistics; group_norm() as layer_norm(); cosine_similarity() at 0.
// Values, derivatives and errors are in the op table (tests/reference/op_table_conv.cpp).
#include "ops/channel_norm.h"

#include <cmath>
#include <vector>

#include "autograd/tape.h"
#include "ops/create.h"
#include "ops/elementwise.h"
#include "ops/norm.h"
#include "ops/reduce.h"
#include "ops/similarity.h"
#include "tests/support/compare.h"
#include "tests/support/gradcheck.h"

namespace stretto::testing {

TEST_CASE("batch_norm updates running statistics", "[ops]") {
  for (const DType dtype : {f64, f32, bf16}) {
    const TensorOptions wide{.dtype = compute_type(dtype)};
    const Tensor mean = zeros({2}, wide), variance = ones({2}, wide);
    // Channel 0 has the values 1, 3, 2, 6: mean 3, unbiased variance 14/3. Channel 1 is constant.
    const Tensor x = tensor(std::vector<double>{1, 3, 4, 4, 2, 6, 4, 4}, {2, 2, 2}).to(dtype);
    batch_norm(x, mean, variance, {}, {}, {.training = true, .momentum = 0.25});
    const double u = dtype == f64 ? 0x1p-52 : 0x1p-23;
    CHECK(mean.to_vector<double>()[0] == Approx(0.75).epsilon(u));
    CHECK(mean.to_vector<double>()[1] == Approx(1).epsilon(u));
    CHECK(variance.to_vector<double>()[0] == Approx(0.75 + 3.5 / 3).epsilon(4 * u));
    CHECK(variance.to_vector<double>()[1] == Approx(0.75).epsilon(u));
    // Evaluation leaves them unchanged.
    const Tensor before = mean.clone();
    const Tensor y = batch_norm(x, mean, variance, {}, {});
    CHECK(equal(mean, before));
    CHECK(y.dtype() == dtype);
    CHECK(y.to_vector<double>()[2] ==
          Approx(3 / std::sqrt(0.75 + 1e-5)).epsilon(dtype == bf16 ? 0x1p-8 : 4 * u));
  }
}

TEST_CASE("batch_norm under recompute() updates running statistics once", "[ops]") {
  const Tensor x = fixed_leaf({3, 2, 4}, 1);
  const Tensor mean = zeros({2}, {.dtype = f64}), once = zeros({2}, {.dtype = f64});
  const auto normalized = [&](const Tensor& running) {
    return [=](const Tensors& in) {
      return batch_norm(in[0], running, {}, {}, {}, {.training = true});
    };
  };
  const Tensor weights = fixed_noise({3, 2, 4}, 2);
  recompute(normalized(mean), {x}).backward(weights);
  const Tensor gradient = x.grad().clone();
  x.set_grad({});
  normalized(once)({x}).backward(weights);
  CHECK(equal(mean, once));
  CHECK(equal(x.grad(), gradient));
}

TEST_CASE("group_norm with one group is layer_norm over a sample", "[ops]") {
  const Tensor x = fixed_noise({3, 4, 5}, 1) * 1e3 + 1e6;
  CHECK(equal(group_norm(x, 1), layer_norm(x.reshape({3, 20})).reshape({3, 4, 5})));
}

TEST_CASE("cosine_similarity of vectors of zeros is 0, with finite gradients", "[ops]") {
  const Tensor a = zeros({2, 3}, {.dtype = f64}).set_requires_grad(), b = fixed_leaf({2, 3}, 1);
  const Tensor y = cosine_similarity(a, b);
  CHECK(y.to_vector<double>() == std::vector<double>{0, 0});
  const Tensors g = grad({sum(y)}, {a, b});
  // The gradient of a is b / (eps · |b|).
  for (int64_t i = 0; i < 2; ++i) CHECK(std::sqrt(sum(square(g[0][i])).item()) == Approx(1e8));
  CHECK(equal(g[1], zeros_like(b)));
  CHECK(cosine_similarity(b, b * -1e-3).to_vector<double>()[0] == Approx(-1).epsilon(1e-14));
}

}  // namespace stretto::testing
