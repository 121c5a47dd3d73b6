// A sum of gradients for the engine. Declared here because the engine calls it; defined in
// ops/elementwise.cpp.
#pragma once

#include "../core/tensor.h"

namespace stretto {

/// Returns a + b for bf16 tensors of one shape: in bf16, rounded once, or in f32. The op is not
/// recorded on the tape.
Tensor add_bf16(const Tensor& a, const Tensor& b, DType dtype);

}  // namespace stretto
