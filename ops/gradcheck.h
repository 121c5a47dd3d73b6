// Gradients held against central differences: for functions and ops of one's own.
//
//     const Tensor x = randn({2, 3}, {.dtype = f64}).set_requires_grad();
//     gradcheck([](const Tensors& in) { return my_op(in[0]); }, {x});
#pragma once

#include <functional>

#include "../core/tensor.h"

namespace stretto {

struct GradcheckOptions {
  double step = 1e-6;  ///< Elements are moved by this, up and down.
  double atol = 1e-5;  ///< Accepted: |gradient − difference| ≤ atol + rtol · |difference|.
  double rtol = 1e-3;  ///< See atol.
  bool twice = true;   ///< Gradients of gradients too (create_graph).
};

/// Throws Error unless the gradients of f at `inputs` are right, and names the first element that
/// differs.
///
/// Checks a randomly weighted sum of f(inputs), of any shape, in every input that requires a
/// gradient: against central differences of each element, with strided and expanded incoming
/// gradients, and that a repeated backward pass is bit-identical. With `twice`, does the same to
/// the gradients themselves, as functions of the inputs and of the incoming gradient. All of it is
/// f64: the inputs that require gradients and the result of f, which must be a pure function of its
/// inputs. Calls f 2n times for n elements, and n times as often with `twice`.
void gradcheck(const std::function<Tensor(const Tensors&)>& f, const Tensors& inputs,
               GradcheckOptions options = {});

}  // namespace stretto
