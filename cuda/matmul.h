// Matrix products on the device.
#pragma once

#include "runtime/kernel.h"

namespace stretto::cuda {

/// True if cuBLAS can read x [.., M, N] in place: the elements of each row, or of each column, are
/// adjacent; the rows (columns) do not overlap; and the distance between matrices is constant (0:
/// the same matrix each time).
STRETTO_KERNEL(bool are_matrices(const Tensor& x));

/// a [.., M, K] · b [.., K, N] → [.., M, N] with equal leading dimensions; are_matrices() must be
/// true for both. f32 (full precision), f64 or bf16 (f32 accumulation).
STRETTO_KERNEL(Tensor matmul(const Tensor& a, const Tensor& b));

}  // namespace stretto::cuda
