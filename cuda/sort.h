// Stable sorting of rows on the device.
#pragma once

#include "runtime/kernel.h"

namespace stretto::cuda {

/// The order of each row of x [rows, n], n < 2^32, contiguous, f32, f64, bf16 or i64: the position
/// in x of the element at place i, as an unsigned integer in an i32 tensor [rows, n]. Equal
/// elements keep their order, and so do NaNs, which are larger than all other values. If `sorted`
/// is not null (i64 only), it receives the sorted elements.
STRETTO_KERNEL(Tensor sort_order(const Tensor& x, bool descending, Tensor* sorted));
/// The first k elements of each row of x [rows, n] in this order: values and indices
/// (i64), both [rows, k].
STRETTO_KERNEL(void sort_rows(const Tensor& x, bool descending, const Tensor& values,
                              const Tensor& indices));
/// For each value the number of elements of sorted [n], in this order, that are less, or with `right`
/// at most equal: i64 in the shape of the values. Both contiguous, f32, f64, bf16 or i64.
STRETTO_KERNEL(Tensor search_sorted(const Tensor& sorted, const Tensor& values, bool right));

}  // namespace stretto::cuda
