// Comparisons and selection by mask on the device. Any strides, with broadcasting.
#pragma once

#include "../core/formulas/elementwise_math.h"
#include "runtime/kernel.h"

namespace stretto::cuda {

/// F(a, b) as bool, for a and b of one dtype: f32, f64, bf16 or i64.
#define STRETTO_DECLARE(F) \
  STRETTO_KERNEL(Tensor compare(elementwise::F, const Tensor& a, const Tensor& b));
STRETTO_COMPARISONS(STRETTO_DECLARE)
#undef STRETTO_DECLARE

/// a if the mask (bool or u8) is not 0, else b, for each element; a and b of one dtype, any.
STRETTO_KERNEL(Tensor where(const Tensor& mask, const Tensor& a, const Tensor& b));

}  // namespace stretto::cuda
