// Softmax on the device, along the last dimension; contiguous, f32, f64 or bf16.
#pragma once

#include "runtime/kernel.h"

namespace stretto::cuda {

/// Softmax, or its logarithm. A row of −∞ becomes zeros, for the logarithm NaN.
STRETTO_KERNEL(Tensor softmax(const Tensor& x, bool logarithm));
/// For y = softmax(x): y · (g − Σ g·y); for the logarithm: g − e^y · Σ g.
STRETTO_KERNEL(Tensor softmax_backward(const Tensor& y, const Tensor& g, bool logarithm));

}  // namespace stretto::cuda
