// Linear attention: everything that never implementations the scores. Queries and keys come as
// features, and
//
//   y_i = Σ_j (q_i·k_j) v_j / (Σ_j q_i·k_j + eps)
//
// with no function of q_i·k_j in between, so that the sums over j can be taken first: the work is
// linear in the length (Katharopoulos et al. 2020, eqs. 5 and 9). Features that make q_i·k_j
// positive are in nn/attention/feature_map.h.
//
// Query i stands at key position i + N − M, as in ops/attention/attention.h.
//
// Reference: tests/reference/linear_attention.cpp, linear_attention()
#pragma once

#include "linear_attention_terms.h"

namespace stretto {

/// q [B, H, M, F], k [B, G, N, F], v [B, G, N, Dv] → [B, H, M, Dv]; H is a multiple of G and head h
/// uses key head ⌊h·G/H⌋. All of one floating dtype; sums are kept in f64 for f64, in f32 for
/// others. In bf16 the products q·k within a chunk are rounded, where they are operands of the next
/// product, and backward g / denominator; the sums of keys and values are not. A GPU rounds the
/// weights of backward alone.
///
/// A query whose denominator is exactly 0 (no key to see, or none that has a feature in common)
/// gives zeros and gets no gradient. Keys and values that the mask hides from a query may hold
/// anything: a NaN or an infinity reaches the queries that see it and no others. On a GPU this
/// holds for key_padding and for k; one in v also reaches the queries before it in its chunk, or,
/// composed, all.
Tensor linear_attention(const Tensor& q, const Tensor& k, const Tensor& v,
                        LinearAttentionOptions options = {});

struct LinearAttentionAndDenominators {
  Tensor out;           // [B, H, M, Dv]
  Tensor denominators;  // Σ_j q_i·k_j + eps [B, H, M], f64 for f64, else f32; off the tape
};
/// The same with the denominators, to see whether features underflow.
LinearAttentionAndDenominators linear_attention_and_denominators(
    const Tensor& q, const Tensor& k, const Tensor& v, LinearAttentionOptions options = {});

/// The same for positions that continue those in `state`: all queries also see all keys in it, and
/// the new keys join it. One token at a time this is generation, in constant memory per token;
/// with no keys it reads a state that a context has left there. Causal needs M ≤ N then, unless
/// there are no keys at all. The composed form has gradients through the state; where they are
/// recorded, `automatic` is composed.
Tensor linear_attention(const Tensor& q, const Tensor& k, const Tensor& v, LinearState& state,
                        LinearAttentionOptions options = {});

}  // namespace stretto
