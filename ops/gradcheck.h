// Gradients compared with central differences, for your own functions and ops.
//
//     const Tensor x = randn({2, 3}, {.dtype = f64}).set_requires_grad();
//     gradcheck([](const Tensors& in) { return my_op(in[0]); }, {x});
#pragma once

#include <functional>

#include "../core/tensor.h"

namespace stretto {

/// Options of gradcheck().
struct GradcheckOptions {
  double step = 1e-6;  ///< Step of the central differences, up and down.
  double atol = 1e-5;  ///< Accepted: |gradient − difference| ≤ atol + rtol · |difference|.
  double rtol = 1e-3;  ///< See atol.
  bool twice = true;   ///< Checks gradients of gradients too (create_graph).
};

/// Throws an Error that names the first differing element unless the gradients of f at
/// `inputs` are right.
///
/// f may return any shape; the checked function is a randomly weighted sum of f(inputs). For every
/// input that requires a gradient, the gradient is compared with central differences of each
/// element, also with strided and expanded incoming gradients. A repeated backward pass must be
/// bit-identical. With `twice`, the same is checked for the gradients themselves, as functions of
/// the inputs and of the incoming gradient.
///
/// The inputs that require gradients and the result of f must be f64, and f must be a pure function
/// of its inputs. Calls f 2n times for n elements; `twice` multiplies this by about n.
void gradcheck(const std::function<Tensor(const Tensors&)>& f, const Tensors& inputs,
               GradcheckOptions options = {});

}  // namespace stretto
