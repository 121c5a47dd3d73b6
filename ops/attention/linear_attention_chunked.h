// The chunked form of linear attention. Internal to ops/.
//
// Reference: tests/reference/linear_attention.cpp, linear_attention()
#pragma once

#include "linear_attention_terms.h"

namespace stretto {

/// Arguments are checked by linear_attention(), any floating
/// dtype. `state` may be null; else its sums come
/// before all keys, new ones with those keys take their place (its length is left alone), and
/// nothing may be recorded.
Tensor chunked_linear_attention(const Tensor& q, const Tensor& k, const Tensor& v,
                                LinearState* state, const LinearAttentionOptions& options);

}  // namespace stretto
