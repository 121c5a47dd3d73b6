// Conversion of bf16 operands for ops that compute in f32. Internal to ops/ and nn/.
//
// Reference: none (a conversion; tests compare memory)
#pragma once

#include "../autograd/tape.h"

namespace stretto {

/// Returns x in compute_type() of its dtype. On the CPU an op that saves the result saves x instead
/// and converts it again in the backward pass, so x must not be changed in place before. A view of
/// the result is saved as it is: take views of x.
inline Tensor widened(const Tensor& x) {
  Tensor y = x.to(compute_type(x.dtype()));
  if (is_narrow(x.dtype()) && x.device().is_cpu())
    rematerialize(y, [x = Saved(x), type = y.dtype()] { return x().to(type); });
  return y;
}

}  // namespace stretto
