// Linear attention in its composed form: products of queries and keys, in differentiable ops.
// Internal to ops/.
//
// Reference: tests/reference/linear_attention.cpp, linear_attention()
#pragma once

#include "linear_attention_terms.h"

namespace stretto {

/// Arguments are checked by linear_attention(). `state` may be null; else its sums come before all
/// keys, and new ones with those keys take their place (its length is left alone). Puts
/// Σ_j q_i·k_j + eps [B, H, M] into `denominators` unless it is null.
Tensor composed_linear_attention(const Tensor& q, const Tensor& k, const Tensor& v,
                                 LinearState* state, const LinearAttentionOptions& options,
                                 Tensor* denominators = nullptr);

}  // namespace stretto
