// Rows made orthonormal on the device.
#pragma once

#include "../core/device.h"
#include "runtime/kernel.h"

namespace stretto::cuda {

/// Whether a block of the device keeps a matrix of n rows and m columns of f64 in shared memory
/// (160 × 160 where it has 227 KB).
STRETTO_KERNEL(bool orthogonal_rows_fit(int64_t n, int64_t m, Device device));
/// The rows of each matrix of x [..., n, m], contiguous, f64, n ≤ m, in place.
STRETTO_KERNEL(void orthogonal_rows(const Tensor& x));

}  // namespace stretto::cuda
