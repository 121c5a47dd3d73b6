// Rows made orthonormal on the device.
#pragma once

#include "../core/device.h"
#include "runtime/kernel.h"

namespace stretto::cuda {

/// True if a block of the device can hold a matrix of n rows and m columns of f64 in shared memory
/// (160 × 160 if it has 227 KB).
STRETTO_KERNEL(bool orthogonal_rows_fit(int64_t n, int64_t m, Device device));
/// Makes the rows of each matrix of x [..., n, m] orthonormal, in place; contiguous, f64, n ≤ m.
STRETTO_KERNEL(void orthogonal_rows(const Tensor& x));

}  // namespace stretto::cuda
