// Derivatives of activations in f32 against f64: no cancellation where the sigmoid is close to 1.
#include <cmath>
#include <functional>

#include "autograd/tape.h"
#include "ops/create.h"
#include "ops/elementwise.h"
#include "ops/reduce.h"
#include "tests/support/catch.h"

namespace stretto::testing {
namespace {

using Function = std::function<Tensor(const Tensor&)>;

// f′ and f″ at x.
Tensors derivatives(const Function& f, const Tensor& x) {
  const Tensor leaf = x.detach().clone().set_requires_grad();
  const Tensor slope = grad({sum(f(leaf))}, {leaf}, {}, {.create_graph = true})[0];
  const Tensor plain = grad({sum(f(leaf))}, {leaf})[0];
  return {plain, slope.detach(), grad({sum(slope)}, {leaf})[0]};
}

}  // namespace

TEST_CASE("slopes of silu and gelu_tanh are accurate to a few roundings", "[elementwise]") {
  const Tensor x = arange(-20, 20, 1.0 / 64, {.dtype = f64});
  for (const Function& f : {Function(silu), Function(gelu_tanh)}) {
    const Tensors exact = derivatives(f, x), got = derivatives(f, x.to(f32));
    // A slope is s + s·t·u with sigmoids s and t, one of them near 1, and u up to 20, or t·u up to
    // 2 for larger u. That is a few roundings of 2⁻²⁴ of values up to 2. f″ has the factor d/dx u,
    // up to 15, times the rounding of the values near 1 in the slope of s.
    const double rounding = 0x1p-24;
    CHECK(max(abs(got[0].to(f64) - exact[0])).item() <= 8 * rounding);
    CHECK(max(abs(got[1].to(f64) - exact[1])).item() <= 8 * rounding);
    CHECK(max(abs(got[2].to(f64) - exact[2])).item() <= 60 * rounding);
  }
}

}  // namespace stretto::testing
