// Sums and other reductions on the device.
#pragma once

#include "runtime/kernel.h"

namespace stretto::cuda {

/// The sum over `sorted_dims` (0 … dim − 1, ascending; empty: over no dimension). f32, f64, bf16 or
/// i64, any strides; accumulated in f32 (f64 for f64, i64 for i64) in a fixed order.
STRETTO_KERNEL(Tensor sum(const Tensor& x, const Shape& sorted_dims, bool keepdim));

/// For each row of x [.., n], n ≥ 1: writes the largest (smallest) value, or the first NaN, to
/// `values` and its first position to `indices`, i64; both contiguous [..]. f32, f64, bf16 or i64.
STRETTO_KERNEL(void extremes(const Tensor& x, bool largest, const Tensor& values,
                             const Tensor& indices));
/// Writes log Σ exp of each row of x [.., n] to y, contiguous [..]; floating.
STRETTO_KERNEL(void logsumexp(const Tensor& x, const Tensor& y));
/// Running sums along dimension d; contiguous, f32, f64, bf16 or i64.
STRETTO_KERNEL(Tensor cumsum(const Tensor& x, int64_t d));

}  // namespace stretto::cuda
