// A sum of gradients for the engine. Declared here because the engine calls it; defined in
// ops/add_bf16.cpp.
#pragma once

#include "../core/tensor.h"

namespace stretto {

/// The largest number of terms of add_bf16().
inline constexpr size_t most_bf16_terms = 4;

/// Returns the sum of 2 to 4 bf16 tensors of one shape, added in f32 from left to right: in bf16,
/// rounded once, or in f32. The op is not recorded on the tape.
Tensor add_bf16(const Tensors& terms, DType dtype);

}  // namespace stretto
