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

/// Returns the elements on and below diagonal k of the last two dimensions; the others are 0.
Tensor tril(const Tensor& x, Int k = 0);
/// Returns the elements on and above diagonal k of the last two dimensions; the others are 0.
Tensor triu(const Tensor& x, Int k = 0);

}  // namespace stretto
