// What the engine asks of ops/ where gradients meet (ops/elementwise.cpp). Internal to both.
#pragma once

#include "../core/tensor.h"

namespace stretto {

/// a + b of two bf16 tensors of one shape, in f32; off the tape.
Tensor add_in_f32(const Tensor& a, const Tensor& b);

}  // namespace stretto
