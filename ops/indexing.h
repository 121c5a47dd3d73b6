// Joining, splitting and indexing. Indices are i64 or i32 and must be in range; an error contains
// the first index out of range. Gradients of repeated indices are added in a fixed order.
#pragma once

#include <string>
#include <vector>

#include "../core/tensor.h"

namespace stretto {

/// Concatenates along an existing dimension; all other sizes and the dtypes must agree.
Tensor cat(const Tensors& tensors, Int d = 0);
/// Stacks along a new dimension d; all shapes must agree.
Tensor stack(const Tensors& tensors, Int d = 0);
/// Splits x along d into views of `size` (the last may be smaller).
Tensors split(const Tensor& x, Int size, Int d = 0);
/// Splits x along d into views of the given sizes, which must add up to the size of d.
Tensors split(const Tensor& x, const std::vector<int64_t>& sizes, Int d = 0);

/// Returns y[.., i, ..] = x[.., index[.., i, ..], ..] along d. The index has as many dimensions as
/// x; its sizes other than d are at most those of x.
Tensor gather(const Tensor& x, Int d, const Tensor& index);
/// Returns the slices x[.., index[i], ..] along d; index is 1-d.
Tensor index_select(const Tensor& x, Int d, const Tensor& index);
/// Returns x with source[.., i, ..] added at [.., index[.., i, ..], ..] along d. Differentiable
/// in x and source.
Tensor scatter_add(const Tensor& x, Int d, const Tensor& index, const Tensor& source);

/// Returns the indices as row-major i64. Throws unless all are in [0, n): "[op] index 7 at position
/// [0, 3] is out of range: TARGET". On a GPU the error is thrown at the next synchronization, and
/// the result has 0 in place of an index out of range.
Tensor checked_index(const char* op, const Tensor& index, int64_t n, const std::string& target);

/// Returns rows of a table: table [V, D], ids of any shape S → [S…, D].
Tensor embedding(const Tensor& table, const Tensor& ids);

}  // namespace stretto
