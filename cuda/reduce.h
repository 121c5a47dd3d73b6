// Sums on the device.
#pragma once

#include "cuda/kernel.h"

namespace stretto::cuda {

/// Sum over `sorted_dims` (0 … dim−1, ascending, none: no dimension), f32, f64, bf16 or i64,
/// any strides; accumulated in f32 (f64 for f64, i64 for i64) in a fixed order.
STRETTO_KERNEL(Tensor sum(const Tensor& x, const Shape& sorted_dims, bool keepdim));

}  // namespace stretto::cuda
