// Replaces a parameter of a module by another tensor.
#pragma once

#include "autograd/tape.h"
#include "core/tensor.h"

namespace stretto::testing {

/// Makes `parameter`, and every handle to it, refer to the memory and tape node of x, so that
/// gradients of the module go to x.
inline void stand_in(const Tensor& x, const Tensor& parameter) {
  parameter.tape() = nullptr;
  parameter.set_data(x);
  parameter.tape() = x.tape();
}

}  // namespace stretto::testing
