// Linear attention: attention without a matrix of scores. Queries and keys are given as features,
//
//   y_i = Σ_j (q_i·k_j) v_j / (Σ_j q_i·k_j + eps)
//
// No function such as exp is applied to q_i·k_j. The sums over j can therefore be computed first,
// and the cost is linear in the length (Katharopoulos et al. 2020, eqs. 5 and 9). Feature maps that
// make q_i·k_j positive are in nn/attention/feature_map.h.
//
// Query i has key position i + N − M, as in ops/attention/attention.h.
//
// Reference: tests/reference/linear_attention.cpp, linear_attention()
#pragma once

#include "linear_attention_terms.h"

namespace stretto {

/// Computes linear attention: q [B, H, M, F], k [B, G, N, F], v [B, G, N, Dv] → [B, H, M, Dv]. H is
/// a multiple of G, and query head h uses key head ⌊h·G/H⌋.
///
/// All tensors have one floating-point dtype; sums are f64 for f64, else f32. In bf16 the CPU
/// rounds the products q·k within a chunk where they are operands of another product, and in the
/// backward pass also g / denominator; sums over keys and values are not rounded. A GPU rounds only
/// the weights of the backward pass.
///
/// A query whose denominator is exactly 0 (no visible key, or none with a feature in common) gives
/// zeros and gets no gradient. Keys and values that the mask hides from a query may have any
/// values: a NaN or an infinity reaches only the queries that see it. On a GPU this holds for
/// key_padding and for k; a NaN or an infinity in v also reaches the earlier queries of its chunk
/// or, in the composed implementation, all queries.
Tensor linear_attention(const Tensor& q, const Tensor& k, const Tensor& v,
                        LinearAttentionOptions options = {});

/// The result of linear_attention_and_denominators().
struct LinearAttentionAndDenominators {
  Tensor out;           ///< Output [B, H, M, Dv].
  Tensor denominators;  ///< Σ_j q_i·k_j + eps [B, H, M], f64 for f64, else f32; no gradient.
};
/// Computes linear attention and also returns the denominators, which show whether features
/// underflow.
LinearAttentionAndDenominators linear_attention_and_denominators(
    const Tensor& q, const Tensor& k, const Tensor& v, LinearAttentionOptions options = {});

/// Computes linear attention for positions that continue a recurrent state: every query also sees
/// all keys in `state`, and the new keys are added to `state`.
///
/// With one token at a time, generation needs constant memory per token. Without keys (N = 0) the
/// state is only read, for example the state of an encoded context. Causal attention requires M ≤ N
/// unless N = 0. Gradients go through the state, except in the fused CPU implementation: on the
/// CPU, `automatic` is composed when gradients are recorded.
Tensor linear_attention(const Tensor& q, const Tensor& k, const Tensor& v, LinearState& state,
                        LinearAttentionOptions options = {});

}  // namespace stretto
