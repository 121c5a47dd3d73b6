// Attention on scores: one function for all schemes that act on q·k.
//
//   score(i, j) = scale · (q_i · k_j  +  p_i · K[r])  +  b[r]  +  bias(i, j),   r = j − p(i)
//   out_i = Σ_j softmax_j(score)_ij (v_j + V[r])
//
// Query i stands at key position p(i) = i + N − M: queries are the last M of the N positions; where
// M > N the first of them stand before all keys. r is the relative position of the key; the past is
// negative. K, V and b are tables over r. What each paper calls its scheme is a setting of these
// (README, "Attention"): AttentionOptions, ops/attention/attention_terms.h.
//
// Reference: tests/reference/attention.cpp, attention()
#pragma once

#include "attention_terms.h"

namespace stretto {

/// q [B, H, M, D], k [B, G, N, D], v [B, G, N, Dv] → [B, H, M, Dv]; H is a multiple of G and head h
/// uses key head ⌊h·G/H⌋. All of one floating dtype; bf16 has sums and softmax in f32 and is
/// rounded once, at the end, and where a processor multiplies bf16 the fused form rounds weights
/// and score gradients too, as operands of products. A query with nothing to attend to gives zeros.
///
/// Keys and values that the mask hides from a query may hold anything, NaN and infinity too: they
/// change neither its output nor any gradient through it. A query that sees an infinity or a NaN
/// may give NaN as a whole. A bias of −∞ hides nothing in this sense. On a GPU this holds for
/// key_padding; a NaN or an infinity in v that only causal, window or block hide reaches the
/// queries whose tile of keys has it, and one in k their gradients. In bf16 a GPU saves log Σ
/// e^score as one f32, and the rounding error of the output (cuda/attention/attention.h has the
/// error and the memory).
Tensor attention(const Tensor& q, const Tensor& k, const Tensor& v, AttentionOptions options = {});

struct AttentionWithLse {
  Tensor out;  // [B, H, M, Dv]
  Tensor lse;  // log Σ_j e^score(i, j) [B, H, M]; −∞ where there is nothing to attend to
};
/// Attention to a part of the keys, and what puts parts together: with l = log Σ_b e^l_b, the
/// attention to all is Σ_b e^(l_b − l) out_b. f32 and f64 on the CPU, fused; gradients go through
/// both, and cannot be differentiated again.
AttentionWithLse attention_with_lse(const Tensor& q, const Tensor& k, const Tensor& v,
                                    AttentionOptions options = {});

/// The softmax weights [B, H, M, N] of the same attention, without dropout; for pictures and tests.
Tensor attention_weights(const Tensor& q, const Tensor& k, AttentionOptions options = {});
/// Its masked scores before softmax [B, H, M, N]: score(i, j), and −∞ for a key that is not seen.
Tensor attention_scores(const Tensor& q, const Tensor& k, AttentionOptions options = {});

}  // namespace stretto
