// Gradients of a whole module held against central differences (ops/gradcheck.h: of a
// function, element by element).
#pragma once

#include <functional>

#include "module.h"

namespace stretto::nn {

struct ModuleGradcheckOptions {
  double step = 1e-5;  ///< Parameters are moved by this; a short one where the loss has corners.
  double atol = 1e-9;  ///< Accepted: |slope − difference| ≤ atol + rtol · |difference|.
  double rtol = 1e-6;  ///< See atol.
};

/// Throws Error unless the gradient of `loss` is right in every parameter of the model, and names
/// the first that is not: its slope along a random direction against a central difference. A
/// parameter that gets no gradient, or only zeros, is an error too. The parameters and the loss
/// (0-d, the same value in every call: evaluation mode, or a fixed seed) are f64. Leaves the
/// gradients in grad().
void gradcheck(const Module& model, const std::function<Tensor()>& loss,
               ModuleGradcheckOptions options = {});

}  // namespace stretto::nn
