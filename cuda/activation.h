// Activation functions of feed-forward layers on the device, with gate and dropout.
#pragma once

#include "../core/formulas/activation.h"
#include "../core/random.h"
#include "runtime/kernel.h"

namespace stretto::cuda {

/// f(x) · up · scale, but 0 for element i if the upper 24 bits of random number i of the key are
/// less than `below` (0: no dropout, and no scale). `up` may be undefined: 1. Tensors of one shape;
/// f32, f64 or bf16; contiguous, or x and `up` [.., D] the halves of one contiguous block [.., 2 D]
/// (are_halves()).
STRETTO_KERNEL(Tensor activate(const Tensor& x, const Tensor& up, Activation f, uint32_t below,
                               double scale, RandomKey key));
/// True if x and `up` are the halves of one contiguous block, and D is a multiple of 8.
STRETTO_KERNEL(bool are_halves(const Tensor& x, const Tensor& up));
/// The gradients of x and `up` (undefined without it) from the gradient g of activate(), laid out as
/// x and `up`.
STRETTO_KERNEL(Tensors activate_backward(const Tensor& x, const Tensor& up, const Tensor& g,
                                         Activation f, uint32_t below, double scale,
                                         RandomKey key));

}  // namespace stretto::cuda
