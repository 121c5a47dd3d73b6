// A tensor in the place of a module's parameter.
#pragma once

#include "autograd/tape.h"
#include "core/tensor.h"

namespace stretto::testing {

/// Through `parameter`, and every handle to it, a module now sees x: its memory and its place on
/// the tape, so that gradients go to x.
inline void stand_in(const Tensor& x, const Tensor& parameter) {
  parameter.tape() = nullptr;
  parameter.set_data(x);
  parameter.tape() = x.tape();
}

}  // namespace stretto::testing
