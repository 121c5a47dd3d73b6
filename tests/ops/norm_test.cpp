// Rows whose mean is far from 0: the rounding of the mean must be corrected.
#include "ops/norm.h"

#include <cmath>
#include <vector>

#include "autograd/tape.h"
#include "ops/create.h"
#include "ops/elementwise.h"
#include "ops/reduce.h"
#include "tests/support/catch.h"
#include "tests/support/gradcheck.h"

namespace stretto::testing {
namespace {

double largest(const Tensor& x) { return max(abs(x.to(f64))).item(); }

// Gradients of layer_norm for an incoming gradient g: of x, weight and bias.
Tensors slopes(const Tensor& x, const Tensor& g, bool recorded) {
  const Shape last{x.size(-1)};
  const Tensors leaves{x.detach().clone().set_requires_grad(),
                       fixed_noise(last, 21).to(x.dtype()).set_requires_grad(),
                       fixed_noise(last, 22).to(x.dtype()).set_requires_grad()};
  const Tensor y = layer_norm(leaves[0], leaves[1], leaves[2]);
  return grad({y}, leaves, {g.to(x.dtype())}, {.create_graph = recorded});
}

}  // namespace

TEST_CASE("layer_norm of a constant row is exactly 0, however large the row") {
  for (const DType dtype : {f32, f64, bf16})
    for (const double value : {0.0, 1000.7, 30000.37, -30000.37, 1e10, 3e18, 1e20, -1e30})
      for (const int64_t n : {1, 2, 3, 17, 100, 768, 1025, 4096}) {
        const Tensor x = full({3, n}, value, {.dtype = dtype});
        INFO(str(dtype, " ", value, " × ", n));
        const Tensor y = layer_norm(x);
        CHECK(largest(y) == 0);
        const Tensor bias = fixed_noise({n}, 3).to(dtype);
        const Tensor shifted = layer_norm(x, ones({n}, {.dtype = dtype}), bias);
        CHECK(shifted[1].to_vector<double>() == bias.to_vector<double>());
        if (n != 768) continue;
        // x̂ = 0: the weight's gradient is 0, and x's is (ĝ − mean ĝ) / √eps.
        const Tensor g = fixed_noise({3, n}, 5);
        for (const bool recorded : {false, true}) CHECK(largest(slopes(x, g, recorded)[1]) == 0);
      }
}

// Against f64 with the same f32 inputs. x̂ and its sums are rounded, but not relative to the mean:
// 2⁻²⁴ of values up to √n, some of them summed.
TEST_CASE("layer_norm is accurate for rows that vary little around a large mean") {
  const int64_t n = 768;
  for (const double mean : {0.0, 3.0, 300.0, 30000.37, 1e6, -1e10})
    for (const double ulps : {0.5, 1.0, 3.0, 40.0, 1e4, 1e6}) {
      const double step = mean == 0 ? 1 : std::fabs(mean) * 0x1p-23;
      const Tensor x = (fixed_noise({4, n}, 11) * (ulps * step) + mean).to(f32);
      const Tensor exact = layer_norm(x.to(f64));
      INFO("mean " << mean << ", ± " << ulps << " ulps");
      CHECK(largest(layer_norm(x).to(f64) - exact) <= 1e-5 * std::max(1.0, largest(exact)));
      const Tensor g = fixed_noise({4, n}, 12).to(f32);
      const Tensors want = slopes(x.to(f64), g, false);
      for (const bool recorded : {false, true}) {
        const Tensors got = slopes(x, g, recorded);
        for (size_t i = 0; i < 3; ++i)
          CHECK(largest(got[i].to(f64) - want[i]) <= 1e-4 * std::max(1.0, largest(want[i])));
      }
    }
}

TEST_CASE("var is accurate for rows that vary little around a large mean") {
  for (const double mean : {0.0, 30000.37, 1e10}) {
    CHECK(largest(var(full({768}, mean))) <= mean * mean * 1e-26);
    const double step = mean == 0 ? 1 : mean * 0x1p-23;
    const Tensor x = (fixed_noise({768}, 11) * (3 * step) + mean).to(f32);
    CHECK(var(x).item() == Approx(var(x.to(f64)).item()).epsilon(1e-5));
  }
  check_gradients([](const Tensors& in) { return var(in[0], {1}); }, {fixed_leaf({2, 5}, 3)});
}

}  // namespace stretto::testing
