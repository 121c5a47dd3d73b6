// [B, H, L, D] operands of the attention ops: checks, and views for kernels by pointer and strides,
// with contiguous rows.
//
// Reference: none (memory layout of operands)
#pragma once

#include <algorithm>

#include "../../core/tensor.h"
#include "../create.h"

namespace stretto {

/// Throws an Error of `op` unless q [B, H, M, D], k [B, G, N, D], v [B, G, N, Dv] and padding
/// [B, N] (bool or u8, or undefined) have matching shapes, one device and, except for the padding,
/// one floating-point dtype.
void check_heads(const char* op, const Tensor& q, const Tensor& k, const Tensor& v,
                 const Tensor& padding);

/// A [B, H, L, D] tensor as a pointer and strides, in elements.
template <class T>
struct Heads {
  T* data = nullptr;
  int64_t batch = 0, head = 0, row = 0;
  explicit operator bool() const { return data != nullptr; }
  T* at(int64_t b, int64_t h, int64_t i = 0) const { return data + b * batch + h * head + i * row; }
};

/// Returns the pointer and strides of x, whose rows must be contiguous; null if x is undefined.
template <class T>
Heads<T> heads_of(const Tensor& x) {
  if (!x.defined()) return {};
  const Shape& s = x.strides();
  return {x.data<T>(), s[0], s[1], x.size(2) == 1 ? std::max(s[2], x.size(3)) : s[2]};
}

/// Returns an uninitialized tensor [B, H, L, D] on the CPU, a view of memory laid out [B, L, H, D].
inline Tensor heads_inside(int64_t b, int64_t h, int64_t l, int64_t d, DType type) {
  return empty({b, l, h, d}, {.dtype = type, .device = cpu}).transpose(1, 2);
}

/// Returns the same with the dtype, device and batch size of x.
inline Tensor heads_beside(const Tensor& x, int64_t h, int64_t l, int64_t d) {
  return empty({x.size(0), l, h, d}, options_of(x)).transpose(1, 2);
}

/// Returns the same in the shape of x; if x is contiguous, the memory is laid out [B, H, L, D].
inline Tensor heads_like(const Tensor& x) {
  if (x.is_contiguous()) return empty_like(x);
  return heads_beside(x, x.size(1), x.size(2), x.size(3));
}

/// Returns the same for several tensors. Consecutive ones that are parts of one block, such as the
/// results of linear() with several weights, have parts of one block as results.
inline Tensors heads_like(const Tensors& all) {
  Tensors like;
  while (like.size() < all.size()) {
    Tensors parts{all[like.size()]};
    Tensor block;
    for (size_t i = like.size() + 1; i < all.size(); ++i) {
      parts.push_back(all[i]);
      const Tensor longer = join_parts(parts, 1);
      if (!longer.defined()) {
        parts.pop_back();
        break;
      }
      block = longer;
    }
    if (parts.size() == 1) {
      like.push_back(heads_like(parts[0]));
      continue;
    }
    Shape heads;
    for (const Tensor& x : parts) heads.push_back(x.size(1));
    for (const Tensor& x : split_into_parts(
             heads_beside(block, block.size(1), block.size(2), block.size(3)), 1, heads))
      like.push_back(x);
  }
  return like;
}

/// Returns x detached, and copied unless its rows are contiguous and do not overlap.
inline Tensor rows_contiguous(const Tensor& x) {
  if (!x.defined()) return {};
  const Tensor y = x.detach();
  const Shape& s = y.strides();
  const bool fits = (s.back() == 1 || y.shape().back() == 1) &&
                    (y.dim() < 2 || s[y.dim() - 2] >= y.shape().back() || y.size(-2) <= 1);
  return fits ? y : y.contiguous();
}

}  // namespace stretto
