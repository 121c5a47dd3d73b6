// Matrix products on the device.
#pragma once

#include "cuda/kernel.h"

namespace stretto::cuda {

/// op(a) [.., M, K] · op(b) [.., K, N] → [.., M, N], where `transpose_` says that the operand lies
/// in memory with its last two dimensions exchanged. Contiguous, f32 (full precision), f64 or bf16
/// (f32 accumulation). Leading dimensions are equal, or b has none and is shared.
STRETTO_KERNEL(Tensor matmul(const Tensor& a, const Tensor& b, bool transpose_a, bool transpose_b));

}  // namespace stretto::cuda
