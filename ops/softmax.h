// Softmax and its logarithm along one dimension, computed relative to the maximum.
#pragma once

#include "../core/tensor.h"

namespace stretto {

/// Computes exp(x) / Σ exp(x) along d. A slice of only −inf, as for a query whose keys are all
/// hidden, gives zeros and not NaN.
Tensor softmax(const Tensor& x, Int d = -1);
/// Computes log(softmax(x)) along d; unlike softmax, a slice of only −inf gives NaN.
Tensor log_softmax(const Tensor& x, Int d = -1);

}  // namespace stretto
