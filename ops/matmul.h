// Matrix products.
#pragma once

#include "../core/tensor.h"

namespace stretto {

/// a [.., M, K] · b [.., K, N] → [.., M, N]. A 1-d operand counts as a row (a) or a column (b) and
/// its dimension is dropped from the result; leading dimensions broadcast. K = 0 gives zeros.
/// Both floating, one dtype; bf16 accumulates in f32.
Tensor matmul(const Tensor& a, const Tensor& b);

/// x [.., in] · weightᵀ [in, out] + bias [out] (may be undefined) → [.., out].
Tensor linear(const Tensor& x, const Tensor& weight, const Tensor& bias = {});

}  // namespace stretto
