// The chunked form of linear attention. Internal to ops/.
#pragma once

#include "ops/linear_attention.h"

namespace stretto {

/// Arguments are checked by linear_attention(), f32 or f64. `sums` [B, G, F, Dv + 1], contiguous,
/// may be undefined; else they come before all keys, those join them in place, and nothing may be
/// recorded.
Tensor chunked_linear_attention(const Tensor& q, const Tensor& k, const Tensor& v,
                                const Tensor& sums, const LinearAttentionOptions& options);

}  // namespace stretto
