// Gradients of a whole module's parameters.
#pragma once

#include <functional>

#include "autograd/tape.h"
#include "nn/module.h"
#include "ops/elementwise.h"
#include "ops/reduce.h"
#include "tests/support/catch.h"
#include "tests/support/gradcheck.h"

namespace stretto::testing {

/// Holds the gradient of `loss` (0-d, f64, the same value in every call) for each parameter along a
/// random direction against a central difference of steps ±h: short ones where the loss has
/// corners. A parameter that gets none, or only zeros, fails.
inline void check_parameter_gradients(const nn::Module& model, const std::function<Tensor()>& loss,
                                      double h = 1e-5) {
  for (const Tensor& p : model.parameters()) p.set_grad({});
  loss().backward();
  for (const auto& [name, p] : model.named_parameters()) {
    INFO(name);
    REQUIRE(p.grad().defined());
    CHECK(max(abs(p.grad())).item() > 0);
    const Tensor direction = fixed_noise(p.shape(), 7);
    const double slope = sum(p.grad() * direction).item();
    NoGrad guard;
    Tensor value = p;
    const auto at = [&](double step) {
      value.add_(direction, step);
      const double y = loss().item();
      value.add_(direction, -step);
      return y;
    };
    CHECK(slope == Approx((at(h) - at(-h)) / (2 * h)).epsilon(1e-6).margin(1e-9));
  }
}

}  // namespace stretto::testing
