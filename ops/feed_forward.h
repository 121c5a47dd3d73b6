// Two linear layers with a function between them.
#pragma once

#include "../core/random.h"
#include "../core/tensor.h"

namespace stretto {

/// gelu is exact, gelu_tanh its approximation.
enum class Activation { relu, gelu, gelu_tanh, silu };

/// f(x), elementwise.
Tensor activate(const Tensor& x, Activation f);

/// linear(dropout(f(linear(x, w1, b1)), p), w2, b2): x [.., in], w1 [hidden, in], b1 [hidden], w2
/// [out, hidden], b2 [out] → [.., out] (Vaswani et al., 2017, eq. 2); without biases where they are
/// undefined. The first bias, f, dropout and their gradients are made where the products are: on a
/// CPU all, on a GPU gelu_tanh between biases in f32 and bf16, without dropout; else one by one.
Tensor feed_forward(const Tensor& x, const Tensor& w1, const Tensor& b1, const Tensor& w2,
                    const Tensor& b2, Activation f, double p = 0);
/// Its dropout draws with that key.
Tensor feed_forward(const Tensor& x, const Tensor& w1, const Tensor& b1, const Tensor& w2,
                    const Tensor& b2, Activation f, double p, RandomKey key);

}  // namespace stretto
