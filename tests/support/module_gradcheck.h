// Checks of the gradients of all parameters of a module.
#pragma once

#include <functional>

#include "nn/gradcheck.h"
#include "tests/support/catch.h"
#include "tests/support/gradcheck.h"

namespace stretto::testing {

/// Checks in the running test that nn::gradcheck() with steps ±h passes.
inline void check_parameter_gradients(const nn::Module& model, const std::function<Tensor()>& loss,
                                      double h = 1e-5) {
  try {
    nn::gradcheck(model, loss, {.step = h});
    CHECK(true);
  } catch (const Error& e) {
    FAIL_CHECK(e.what());
  }
}

}  // namespace stretto::testing
