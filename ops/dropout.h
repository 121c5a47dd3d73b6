// Inverted dropout (Srivastava et al., 2014): values that are not dropped are multiplied by
// 1 / (1 − p).
#pragma once

#include "../core/random.h"
#include "../core/tensor.h"

namespace stretto {

/// Zeroes each element with probability p ∈ [0, 1] and multiplies the others by 1 / (1 − p). Takes
/// a key from the random state. p = 0 returns x.
Tensor dropout(const Tensor& x, double p);
/// Applies dropout with a given key: element i is dropped if uniform sample i of the key is below
/// p. The mask is never stored; the backward pass generates it again.
Tensor dropout(const Tensor& x, double p, RandomKey key);

/// Computes residual + dropout(x, p), as at the end of a residual branch (Vaswani et al., 2017,
/// §5.4), in one loop and rounded once. x and residual have the same shape, dtype and device. Takes
/// a key from the random state.
Tensor dropout_add(const Tensor& x, const Tensor& residual, double p);
/// Computes the same with a given key; see dropout().
Tensor dropout_add(const Tensor& x, const Tensor& residual, double p, RandomKey key);

}  // namespace stretto
