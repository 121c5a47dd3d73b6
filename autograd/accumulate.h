// A sum of gradients for the engine. Declared here because the engine calls it; defined in
// ops/elementwise.cpp.
#pragma once

#include "../core/tensor.h"

namespace stretto {

/// Returns a + b in f32, of two bf16 tensors of the same shape; not recorded.
Tensor add_in_f32(const Tensor& a, const Tensor& b);

}  // namespace stretto
