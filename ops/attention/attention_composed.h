// Attention in its composed form: the papers' formulas in differentiable ops. Internal to ops/.
//
// Reference: tests/reference/attention.cpp, attention(), attention_weights()
#pragma once

#include "attention_terms.h"

namespace stretto {

/// Arguments are checked and options completed by attention(). `huge`: values that the mask hides
/// may be so large that their products with gradients overflow.
Tensor composed_attention(const Tensor& q, const Tensor& k, const Tensor& v,
                          const AttentionOptions& options, bool huge = false);
/// The scores before softmax [B, H, M, N], −∞ where a key is not seen.
Tensor composed_scores(const Tensor& q, const Tensor& k, const AttentionOptions& options);

}  // namespace stretto
