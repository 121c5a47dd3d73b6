// The fused form of attention, and what both forms share. Internal to ops/.
//
// Reference: tests/reference/attention.cpp, attention()
#pragma once

#include "ops/attention/attention.h"

namespace stretto {

struct KeyRange {
  int64_t begin, end;
};

/// The keys that a query at key position `position` may see under causal, window and block.
KeyRange visible_keys(int64_t position, int64_t n_keys, const AttentionOptions& options);

/// What scores are multiplied with: 1/√D unless the options say so; heads of size 0 have scores of
/// 0.
double score_scale(const Tensor& q, const AttentionOptions& options);

/// The largest distance into the past that any query can see.
int64_t furthest_past(int64_t n_keys, const AttentionOptions& options);

/// Whether the fused form computes these options.
bool fused_attention_covers(const Tensor& q, const AttentionOptions& options);

/// f32 or f64. Arguments are checked and options completed by attention().
Tensor fused_attention(const Tensor& q, const Tensor& k, const Tensor& v,
                       const AttentionOptions& options);

}  // namespace stretto
