// Matrix products.
#pragma once

#include "../core/tensor.h"

namespace stretto {

/// Computes a [.., M, K] · b [.., K, N] → [.., M, N].
///
/// A 1-d operand is treated as a row (a) or a column (b), and its dimension is dropped from the
/// result. Leading dimensions broadcast. K = 0 gives zeros. Both have the same floating-point
/// dtype; bf16 products are summed in f32.
Tensor matmul(const Tensor& a, const Tensor& b);

/// Computes x [.., in] · weightᵀ + bias → [.., out], with weight [out, in] and bias
/// [out] or undefined.
Tensor linear(const Tensor& x, const Tensor& weight, const Tensor& bias = {});

}  // namespace stretto
