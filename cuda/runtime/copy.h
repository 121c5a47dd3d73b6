// Fills and copies on the device. Any dtype, any strides.
#pragma once

#include "kernel.h"

namespace stretto::cuda {

STRETTO_KERNEL(void fill(const Tensor& out, double value));
/// Both have the same shape. Converts the dtype as convert() of core/dtype.h does.
STRETTO_KERNEL(void strided_copy(const Tensor& to, const Tensor& from));

}  // namespace stretto::cuda
