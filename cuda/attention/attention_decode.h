// Attention of few queries to many keys, as in generation: the keys are split over the GPU. bf16
// and f32, no gradients.
#pragma once

#include "attention.h"

namespace stretto::cuda {

/// Whether the call is one of at most 8 queries that fill little of a GPU by themselves, with 512
/// keys or more, without dropout, and of what attention() takes.
STRETTO_KERNEL(bool attention_decode_takes(const AttentionOperands& call));
/// Writes out [B, H, M, Dv]. Beyond the table of keys are zeros, or with OutOfRange::clip its
/// outermost rows.
STRETTO_KERNEL(void attention_decode(const AttentionOperands& call, const Tensor& out));

}  // namespace stretto::cuda
