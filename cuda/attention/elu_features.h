// The feature map elu(x) + 1 on the device.
#pragma once

#include "../runtime/kernel.h"

namespace stretto::cuda {

/// y = x + 1 if x > 0, else e^x. Floating, of one shape and dtype, any strides.
STRETTO_KERNEL(void elu_features(const Tensor& x, const Tensor& y));

/// dx = g · min(y, 1), from the features y.
STRETTO_KERNEL(void elu_features_backward(const Tensor& y, const Tensor& g, const Tensor& dx));

}  // namespace stretto::cuda
