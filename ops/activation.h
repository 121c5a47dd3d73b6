// Activation functions of feed-forward layers as one op with gate and dropout. Internal to ops/.
#pragma once

#include "feed_forward.h"

namespace stretto {

/// Returns dropout(f(x) · up, p, key), or dropout(f(x), p, key) if `up` is undefined.
Tensor activate_and_drop(const Tensor& x, const Tensor& up, Activation f, double p, RandomKey key);

}  // namespace stretto
