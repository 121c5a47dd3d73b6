// The feed-forward layer: two linear layers with an activation function between them.
#pragma once

#include "../core/formulas/activation.h"
#include "../core/random.h"
#include "../core/tensor.h"

namespace stretto {

/// Computes f(x), elementwise.
Tensor activate(const Tensor& x, Activation f);

/// Computes linear(dropout(f(linear(x, w1, b1)), p), w2, b2): x [.., in], w1 [hidden, in],
/// b1 [hidden], w2 [out, hidden], b2 [out] → [.., out] (Vaswani et al., 2017, eq. 2). Biases
/// may be undefined.
///
/// On the CPU, bias, activation, dropout and their gradients are fused into the products as
/// epilogues. On a GPU only gelu_tanh with both biases is fused, in f32 and bf16 without dropout;
/// otherwise the ops run one by one. Dropout takes a key from the random state.
Tensor feed_forward(const Tensor& x, const Tensor& w1, const Tensor& b1, const Tensor& w2,
                    const Tensor& b2, Activation f, double p = 0);
/// Computes the same with a given key for dropout.
Tensor feed_forward(const Tensor& x, const Tensor& w1, const Tensor& b1, const Tensor& w2,
                    const Tensor& b2, Activation f, double p, RandomKey key);

/// Computes dropout(f(gate) · up, p), the hidden layer of a gated linear unit (Shazeer, 2020, eq. 5
/// and 6; with silu SwiGLU), in one loop; rounded once, and once more by dropout. gate and up have
/// the same shape, floating-point dtype and device. Dropout takes a key from the random state.
Tensor gated_activation(const Tensor& gate, const Tensor& up, Activation f, double p = 0);
/// Computes the same with a given key for dropout.
Tensor gated_activation(const Tensor& gate, const Tensor& up, Activation f, double p,
                        RandomKey key);

}  // namespace stretto
