// Two linear layers with GELU between them.
#pragma once

#include "core/tensor.h"

namespace stretto {

/// linear(gelu_tanh(linear(x, w1, b1)), w2, b2): x [.., in], w1 [hidden, in], b1 [hidden], w2
/// [out, hidden], b2 [out] → [.., out]. On a GPU, in f32 and bf16, the biases, GELU and its
/// gradient are made where the products are.
Tensor gelu_feed_forward(const Tensor& x, const Tensor& w1, const Tensor& b1, const Tensor& w2,
                         const Tensor& b2);

}  // namespace stretto
