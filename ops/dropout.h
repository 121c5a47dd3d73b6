// Dropout (Srivastava et al., 2014), inverted: kept values are scaled by 1 / (1 − p).
#pragma once

#include "../core/random.h"
#include "../core/tensor.h"

namespace stretto {

/// Zeroes each element with probability p ∈ [0, 1]. Element i is dropped when draw i of the key is
/// below p: the mask is drawn again for backward and never stored. Without a key one is taken from
/// the random state. p = 0 returns x.
Tensor dropout(const Tensor& x, double p);
Tensor dropout(const Tensor& x, double p, RandomKey key);

/// residual + dropout(x, p, key) in one pass, rounded once: what a residual branch ends with
/// (Vaswani et al., 2017, §5.4). x and residual have one shape, one dtype and one device.
Tensor dropout_add(const Tensor& x, const Tensor& residual, double p);
Tensor dropout_add(const Tensor& x, const Tensor& residual, double p, RandomKey key);

}  // namespace stretto
