// Comparisons and selection by mask on the device. Any strides, with broadcasting.
#pragma once

#include "../ops/elementwise_math.h"
#include "runtime/kernel.h"

namespace stretto::cuda {

/// Whether F(a, b), bool; a and b of one dtype: f32, f64, bf16 or i64.
#define STRETTO_DECLARE(F) \
  STRETTO_KERNEL(Tensor compare(elementwise::F, const Tensor& a, const Tensor& b));
STRETTO_COMPARISONS(STRETTO_DECLARE)
#undef STRETTO_DECLARE

/// a where the mask (bool or u8) is not 0, else b; any one dtype.
STRETTO_KERNEL(Tensor where(const Tensor& mask, const Tensor& a, const Tensor& b));

}  // namespace stretto::cuda
