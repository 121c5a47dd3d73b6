// Views, copies and conversions. All are differentiable; the members of Tensor with these names
// (core/tensor.h) are defined in view.cpp.
#pragma once

#include "../core/tensor.h"

namespace stretto {

/// Sum over the dimensions that broadcasting would add or repeat: x [..] → `shape`. The gradient
/// of broadcasting.
Tensor sum_to(const Tensor& x, const Shape& shape);

/// x shown with a broadcast shape (a view).
Tensor broadcast_to(const Tensor& x, const Shape& shape);

/// Zeros around dimension d: `before` and `after` entries of `value`.
Tensor pad(const Tensor& x, Int d, Int before, Int after, double value = 0);

/// Order of dimension d reversed (copies: strides are never negative).
Tensor flip(const Tensor& x, Int d);

/// Elements on and below (tril) or above (triu) diagonal k of the last two dimensions; the rest 0.
Tensor tril(const Tensor& x, Int k = 0);
Tensor triu(const Tensor& x, Int k = 0);

}  // namespace stretto
