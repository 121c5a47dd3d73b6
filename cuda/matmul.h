// Matrix products on the device.
#pragma once

#include "runtime/kernel.h"

namespace stretto::cuda {

/// Whether cuBLAS takes x [.., M, N] as it lies: rows or columns of neighbors, at one distance
/// from each other, and matrices at one distance (0: one for all).
STRETTO_KERNEL(bool are_matrices(const Tensor& x));

/// a [.., M, K] · b [.., K, N] → [.., M, N] of equal leading dimensions, both of which
/// are_matrices. f32 (full precision), f64 or bf16 (f32 accumulation).
STRETTO_KERNEL(Tensor matmul(const Tensor& a, const Tensor& b));

}  // namespace stretto::cuda
