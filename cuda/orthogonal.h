// Rows made orthonormal on the device.
#pragma once

#include "cuda/kernel.h"

namespace stretto::cuda {

/// Whether matrices of n rows and m columns are small enough for `orthogonal_rows`: f64 numbers
/// that a multiprocessor keeps on chip (160 × 160 are).
inline bool orthogonal_rows_fit(int64_t n, int64_t m) {
  constexpr int64_t most = int64_t(216) << 10;
  return n < most && m < most && 8 * n * (m + 1) <= most;
}
/// The rows of each matrix of x [..., n, m], contiguous, f64, n ≤ m, in place.
STRETTO_KERNEL(void orthogonal_rows(const Tensor& x));

}  // namespace stretto::cuda
