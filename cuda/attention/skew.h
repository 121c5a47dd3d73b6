// The relative shift on the device, as in ops/attention/skew.h; contiguous, f32, f64 or bf16.
#pragma once

#include "../runtime/kernel.h"

namespace stretto::cuda {

/// [.., M, W] → [.., M, n_keys].
STRETTO_KERNEL(Tensor skew(const Tensor& x, int64_t n_keys));
/// [.., M, N] → [.., M, width].
STRETTO_KERNEL(Tensor unskew(const Tensor& y, int64_t width));

}  // namespace stretto::cuda
