// Gradients of a whole module compared with central differences. ops/gradcheck.h checks a
// function element by element.
#pragma once

#include <functional>

#include "module.h"

namespace stretto::nn {

/// Options of gradcheck().
struct ModuleGradcheckOptions {
  double step = 1e-5;  ///< Step of the parameters; use a small one if the loss is not smooth.
  double atol = 1e-9;  ///< Tolerance: |slope − difference| ≤ atol + rtol · |difference|.
  double rtol = 1e-6;  ///< See atol.
};

/// Compares the gradient of `loss` with a central difference along a random direction, for each
/// parameter of the model. Throws an error that names the first parameter whose gradient differs,
/// is missing or is 0 everywhere.
///
/// The parameters and the loss (0-d) must be f64, and the loss must have the same value in every
/// call, which is checked: use model.eval() or a fixed seed. (EvalMode also disables gradients, so
/// the check fails.) A factor that is exactly 0 gives the parameters behind it a gradient of 0
/// everywhere: set it to another value first. Existing gradients are removed first; the new ones
/// remain in grad().
void gradcheck(const Module& model, const std::function<Tensor()>& loss,
               ModuleGradcheckOptions options = {});

}  // namespace stretto::nn
