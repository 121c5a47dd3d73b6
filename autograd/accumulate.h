// A sum of gradients for the engine. Declared here because the engine calls it; defined in
// ops/elementwise.cpp.
#pragma once

#include "../core/tensor.h"

namespace stretto {

/// Returns the sum of two bf16 tensors of the same shape as an f32 tensor. The op is not recorded
/// on the tape.
Tensor add_in_f32(const Tensor& a, const Tensor& b);

}  // namespace stretto
