// Selecting and adding by index on the device. Indices are i64, contiguous and in range.
#pragma once

#include "runtime/kernel.h"

namespace stretto::cuda {

/// Slices ids [n] of x [outer, rows, inner], contiguous, any dtype: [outer, n, inner].
STRETTO_KERNEL(Tensor take(const Tensor& x, const Tensor& ids));
/// For g [outer, n, inner], contiguous, floating: [outer, rows, inner], for each row the sum, in
/// f64 and in order, of the slices whose id in `ids` [n] is that row.
STRETTO_KERNEL(Tensor place(const Tensor& g, const Tensor& ids, int64_t rows));
/// x[.., index[.., i, ..], ..] along d, of index's shape; any strides and dtype.
STRETTO_KERNEL(Tensor gather(const Tensor& x, int64_t d, const Tensor& index));
/// y[.., index[.., i, ..], ..] += source[.., i, ..] along d, in order of i for each element
/// of y. f32, f64 or i64.
STRETTO_KERNEL(void scatter_add(const Tensor& y, int64_t d, const Tensor& index,
                                const Tensor& source));

}  // namespace stretto::cuda
