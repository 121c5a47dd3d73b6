// The masks of attention as tensors.
//
// Reference: tests/reference/attention.cpp, attention_weights()
#pragma once

#include "../../core/formulas/attention_mask.h"

namespace stretto {

/// Returns the keys hidden from each query: bool, true = hidden, undefined if no setting hides
/// any. The shape is [M, N] if no tensor is set, else [B, H or 1, M, N] or a shape that broadcasts
/// to it. If nothing else is set, the result is mask.hidden itself.
Tensor attention_mask(int64_t n_queries, int64_t n_keys, const AttentionMask& mask,
                      Device device = default_device());

}  // namespace stretto
