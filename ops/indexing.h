// Joining, splitting and indexing. Indices are i64 or i32 and must lie in range (an error names
// the first that does not); gradients of repeated indices add up in a fixed order.
#pragma once

#include <string>
#include <vector>

#include "../core/tensor.h"

namespace stretto {

/// Joins along an existing dimension; all other sizes and dtypes agree.
Tensor cat(const Tensors& tensors, Int d = 0);
/// Joins along a new dimension d; all shapes agree.
Tensor stack(const Tensors& tensors, Int d = 0);
/// Pieces of `size` along d (the last may be smaller), as views.
Tensors split(const Tensor& x, Int size, Int d = 0);
/// Pieces of the given sizes, which add up to the size of d, as views.
Tensors split(const Tensor& x, const std::vector<int64_t>& sizes, Int d = 0);

/// y[.., i, ..] = x[.., index[.., i, ..], ..] along d; index has x's dimensions, its other sizes
/// at most x's.
Tensor gather(const Tensor& x, Int d, const Tensor& index);
/// Slices x[.., index[i], ..] along d; index is 1-d.
Tensor index_select(const Tensor& x, Int d, const Tensor& index);
/// x with source[.., i, ..] added at [.., index[.., i, ..], ..] along d. Differentiable in x and
/// source.
Tensor scatter_add(const Tensor& x, Int d, const Tensor& index, const Tensor& source);

/// The indices as row-major i64, all of which must lie in [0, n): "[op] index 7 at position [0, 3]
/// is out of range: TARGET". On a GPU that is thrown when the host next waits for it, and the
/// result has 0 in their place.
Tensor checked_index(const char* op, const Tensor& index, int64_t n, const std::string& target);

/// Rows of a table: table [V, D], ids of any shape S → [S…, D].
Tensor embedding(const Tensor& table, const Tensor& ids);

}  // namespace stretto
