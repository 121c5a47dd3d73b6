// Attention of few queries to many keys, as in generation: the keys are split over the GPU
// (split-K). bf16 and f32, no gradients.
#pragma once

#include "attention.h"

namespace stretto::cuda {

/// True for at most 8 queries, with batch entries · heads too few to fill a GPU, 512 keys or more,
/// no dropout, and sizes and dtypes that attention() supports. f32 with relative_keys requires that
/// neither a soft cap nor a mask is set that is a tensor, other than key_padding.
STRETTO_KERNEL(bool attention_decode_takes(const AttentionOperands& inputs));
/// True if they compute all terms of the scores and the values.
STRETTO_KERNEL(bool attention_decode_takes_terms(const AttentionOptions& options));
/// Writes out [B, H, M, Dv]. Relative positions out of the key table's range add zero or, with
/// OutOfRange::clip, use its outermost rows.
STRETTO_KERNEL(void attention_decode(const AttentionOperands& inputs, const Tensor& out));

}  // namespace stretto::cuda
