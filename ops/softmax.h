// Softmax and its logarithm along one dimension, computed around the maximum.
#pragma once

#include "../core/tensor.h"

namespace stretto {

/// exp(x) / Σ exp(x) along d. A slice of −inf alone gives zeros, not NaN: nothing to attend to.
Tensor softmax(const Tensor& x, Int d = -1);
Tensor log_softmax(const Tensor& x, Int d = -1);

}  // namespace stretto
