// The chunked form of linear attention. Internal to ops/.
//
// Reference: tests/reference/linear_attention.cpp, linear_attention()
#pragma once

#include "linear_attention_terms.h"

namespace stretto {

/// Arguments are checked by linear_attention(), any floating dtype. `state` may be null; else its
/// sums come before all keys, new ones with those keys take their place (its length is left alone),
/// and nothing may be recorded. Puts Σ_j q_i·k_j + eps, [B, H, M] in the dtype of sums, into
/// `denominators`, unless it is null or there is a state.
Tensor chunked_linear_attention(const Tensor& q, const Tensor& k, const Tensor& v,
                                LinearState* state, const LinearAttentionOptions& options,
                                Tensor* denominators = nullptr);

}  // namespace stretto
