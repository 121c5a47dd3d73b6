// Views, copies and conversions. All are differentiable. The members of Tensor with these names
// (core/tensor.h) are defined in view.cpp.
#pragma once

#include "../core/tensor.h"

namespace stretto {

/// Sums over the dimensions that broadcasting `shape` to the shape of x would add or repeat: x [..]
/// → `shape`. The gradient of broadcasting.
Tensor sum_to(const Tensor& x, const Shape& shape);

/// Returns x broadcast to a shape, as a view.
Tensor broadcast_to(const Tensor& x, const Shape& shape);

/// Pads dimension d with `before` and `after` entries of `value`.
Tensor pad(const Tensor& x, Int d, Int before, Int after, double value = 0);

/// Returns x with dimension d reversed. A copy: strides are never negative.
Tensor flip(const Tensor& x, Int d);

/// Returns a view with dimension `from` moved to position `to`; the others keep their order.
Tensor movedim(const Tensor& x, Int from, Int to);
/// Returns x with dimension d replaced by dimensions of the given sizes, whose product is its size.
/// One size may be −1.
Tensor unflatten(const Tensor& x, Int d, const Shape& sizes);
/// Returns a view of the elements with index in d1 = index in d0 + offset, in a new last dimension
/// in place of d0 and d1.
Tensor diagonal(const Tensor& x, Int offset = 0, Int d0 = 0, Int d1 = 1);
/// Returns a view of all windows of `size` elements along d, `step` apart: dimension d counts the
/// windows, and a new last dimension the elements of a window. The gradient adds overlaps.
Tensor unfold(const Tensor& x, Int d, Int size, Int step);

/// Returns the elements on and below diagonal k of the last two dimensions; the others are 0.
Tensor tril(const Tensor& x, Int k = 0);
/// Returns the elements on and above diagonal k of the last two dimensions; the others are 0.
Tensor triu(const Tensor& x, Int k = 0);

}  // namespace stretto
