// Indexing with integers, slices and tensors, read and assigned, as PyTorch's x[…]:
//
//   x[idx]            x.index({idx})
//   x[mask]           x.index({mask})
//   x[0, :, idx]      x.index({0, Slice(), idx})
//   x[..., 1:3]       x.index({"...", Slice(1, 3)})
//   x[idx] = y        x.index_put_({idx}, y)
//   x[idx] += y       x.index_put_({idx}, y, true)
//
// Integers and slices give views and are applied first, also next to index tensors (NumPy treats
// an integer there as an index tensor: for x [2, 3, 4], x[0, :, idx] is [3, n] here and [n, 3] in
// NumPy). The index tensors (i64 or i32) broadcast to one shape S, which replaces their
// dimensions: at the first of them if they are next to each other, else in front. A 0-d index
// tensor only removes its dimension, as an integer does. Negative indices count from the end. A
// mask (bool or u8) of k dimensions stands for the k index tensors of its nonzero elements, which
// are found on the host.
#pragma once

#include "../core/tensor.h"

namespace stretto {

/// Elements start, start + step, … below end of a dimension; the default is all. See
/// Tensor::slice().
struct Slice {
  int64_t start;  ///< First element.
  int64_t end;    ///< One past the last element.
  int64_t step;   ///< Distance of elements, at least 1.

  /// Elements first, first + by, … below `last`.
  Slice(Int first = 0, Int last = INT64_MAX, Int by = 1) : start(first), end(last), step(by) {}
};

/// One index of Tensor::index(): an integer, a Slice, a tensor of indices, a mask, or "...", which
/// stands for all dimensions that no other index names.
class TensorIndex {
 public:
  /// An entry of a dimension.
  template <WholeNumber T>
  TensorIndex(T index) : kind(Kind::integer), at(index) {}
  /// A range of a dimension.
  TensorIndex(Slice slice) : kind(Kind::slice), range(slice) {}
  /// Indices, or a mask.
  TensorIndex(Tensor indices) : kind(Kind::tensor), tensor(std::move(indices)) {}
  /// "...": the dimensions that no other index names.
  TensorIndex(const char* ellipsis);

  /// The kinds of indices.
  enum class Kind { integer, slice, tensor, ellipsis };
  Kind kind;           ///< Which of the members is set.
  int64_t at = 0;      ///< The integer.
  Slice range = {};    ///< The slice.
  Tensor tensor = {};  ///< The indices or the mask.
};

}  // namespace stretto
