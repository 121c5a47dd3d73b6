// Stable sorting of rows on the device.
#pragma once

#include "runtime/kernel.h"

namespace stretto::cuda {

/// The order of each row of x [rows, n], n < 2^32, contiguous, f32, f64, bf16 or i64: the position
/// in x of what comes at place i, as the bits of an unsigned i32 [rows, n]. Equal numbers, and all
/// NaN, which are larger than any number, keep their order. For i64 the sorted numbers themselves
/// are written to `sorted`, where that is not null.
STRETTO_KERNEL(Tensor sort_order(const Tensor& x, bool descending, Tensor* sorted));
/// What comes first in each row: values and indices (i64), both [rows, k], of x [rows, n].
STRETTO_KERNEL(void sort_rows(const Tensor& x, bool descending, const Tensor& values,
                              const Tensor& indices));

}  // namespace stretto::cuda
