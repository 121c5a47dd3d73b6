// Softmax and its logarithm along one dimension, computed relative to the maximum.
#pragma once

#include "../core/tensor.h"

namespace stretto {

/// Computes exp(x) / Σ exp(x) along d. A slice of only −inf gives zeros, not NaN (all keys hidden).
Tensor softmax(const Tensor& x, Int d = -1);
/// Computes log(softmax(x)) along d.
Tensor log_softmax(const Tensor& x, Int d = -1);

}  // namespace stretto
