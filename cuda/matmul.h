// Matrix products on the device.
#pragma once

#include "runtime/kernel.h"

namespace stretto::cuda {

/// True if cuBLAS can read x [.., M, N] in place: the elements of each row, or of each column, are
/// adjacent; the rows (columns) do not overlap; and the distance between matrices is constant (0:
/// the same matrix each time).
STRETTO_KERNEL(bool are_matrices(const Tensor& x));

/// a [.., M, K] · b [.., K, N] → [.., M, N] with equal leading dimensions; are_matrices() must be
/// true for both. f32 (full precision), f64 or bf16 (f32 accumulation). With `onto`, contiguous and
/// of the result's shape and dtype, the product is added to it in place, rounded once.
STRETTO_KERNEL(Tensor matmul(const Tensor& a, const Tensor& b, const Tensor& onto = {}));

}  // namespace stretto::cuda
