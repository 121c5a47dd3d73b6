// Joining, splitting and indexing. Indices are i64 or i32 and must be in range; an error contains
// the first index out of range. Gradients of repeated indices are added in a fixed order. Indexing
// with several tensors at once, as x[i, :, j], is in ops/index.h.
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

/// Splits x along d into at most n views of equal size (the last may be smaller).
Tensors chunk(const Tensor& x, Int n, Int d = 0);
/// Returns views of the entries of dimension d, without that dimension.
Tensors unbind(const Tensor& x, Int d = 0);

/// Returns x with its elements moved by shifts[i] along dims[i]; elements that leave at one end
/// enter at the other.
Tensor roll(const Tensor& x, const Shape& shifts, const Shape& dims);
/// Returns x repeated counts[d] times along each dimension d, as PyTorch's Tensor.repeat. If there
/// are more counts than dimensions, dimensions are added in front; throws if there are fewer.
Tensor repeat(const Tensor& x, const Shape& counts);
/// Returns x with each entry of dimension d repeated n times in a row.
Tensor repeat_interleave(const Tensor& x, Int n, Int d);
/// Returns x with entry i of dimension d repeated counts[i] times in a row; counts [size of d], i64
/// or i32. Copies the counts to the host.
Tensor repeat_interleave(const Tensor& x, const Tensor& counts, Int d);
/// Returns the coordinates of a grid: tensor i has the values of axis i (1-d) along dimension i,
/// expanded to the sizes of all axes ("ij" indexing).
Tensors meshgrid(const Tensors& axes);

/// Returns y[.., i, ..] = x[.., index[.., i, ..], ..] along d. The index has as many dimensions as
/// x; its sizes other than d are at most those of x.
Tensor gather(const Tensor& x, Int d, const Tensor& index);
/// Returns the slices x[.., index[i], ..] along d; index is 1-d.
Tensor index_select(const Tensor& x, Int d, const Tensor& index);
/// Returns x with source[.., i, ..] added at [.., index[.., i, ..], ..] along d. index and source
/// have one shape, with sizes other than d at most those of x; x and source have one dtype, not
/// bool. Differentiable in x and source.
Tensor scatter_add(const Tensor& x, Int d, const Tensor& index, const Tensor& source);

/// Returns x with source[.., i, ..] stored at [.., index[.., i, ..], ..] along d; shapes and
/// dtypes as for scatter_add, or bool. If an element is stored several times, the last of its
/// values remains; the others get no gradient. Differentiable in x and source.
Tensor scatter(const Tensor& x, Int d, const Tensor& index, const Tensor& source);
/// Returns x with `value` stored at [.., index[.., i, ..], ..] along d.
Tensor scatter(const Tensor& x, Int d, const Tensor& index, double value);
/// Returns x with scale · source[.., i, ..] added to [.., index[i], ..] along d; index is 1-d.
Tensor index_add(const Tensor& x, Int d, const Tensor& index, const Tensor& source,
                 double scale = 1);

/// Returns the indices of all elements that are not 0, in row-major order: [n, dimensions of x],
/// i64. Computed on the host.
Tensor nonzero(const Tensor& x);
/// Returns the elements of x at which the mask (bool or u8) is true, 1-d in row-major order. The
/// mask and x broadcast. Copies the mask to the host.
Tensor masked_select(const Tensor& x, const Tensor& mask);
/// Returns 1 at [.., ids[..]] and 0 elsewhere, i64: ids of any shape S → [S…, n]. The default of n
/// is the largest id + 1.
Tensor one_hot(const Tensor& ids, Int n = -1);
/// Returns how often each of 0, 1, … occurs in ids (1-d, i64 or i32), or with weights [N] the sums
/// of their weights: i64, or the dtype of the weights. The result has at least `min_length`
/// elements, and as many as the largest id requires.
Tensor bincount(const Tensor& ids, const Tensor& weights = {}, Int min_length = 0);

/// Returns the indices as row-major i64. Throws unless all are in [0, n), or with `from_end` in
/// [−n, n), where −1 means n − 1: "[op] index 7 at position [0, 3] is out of range: TARGET". On a
/// GPU the error is thrown at the next synchronization, and the result has 0 in place of an index
/// out of range.
Tensor checked_index(const char* op, const Tensor& index, int64_t n, const std::string& target,
                     bool from_end = false);
/// Stores source at index along d in y, in place, as scatter() does; no checks, and not recorded.
void scatter_into(const Tensor& y, int64_t d, const Tensor& index, const Tensor& source);
/// Does the same by other ops: how scatter_into() works on a GPU.
void scatter_by_sorting(const Tensor& y, int64_t d, const Tensor& index, const Tensor& source);

/// Returns rows of a table: table [V, D], ids of any shape S → [S…, D].
Tensor embedding(const Tensor& table, const Tensor& ids);

}  // namespace stretto
