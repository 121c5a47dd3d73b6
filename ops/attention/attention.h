// Softmax attention: one function for all schemes whose positions act on the scores.
//
//   score(i, j) = scale · (q_i · k_j  +  p_i · K[r])  +  b[r]  +  bias(i, j),   r = j − p(i)
//   out_i = Σ_j softmax_j(score)_ij (v_j + V[r])
//
// Query i has key position p(i) = i + N − M: the queries are the last M of the N positions. If M >
// N, the first queries come before all keys. r is the position of the key relative to the query,
// negative for the past. K, V and b are tables indexed by r. Each paper's scheme is a setting of
// these options (docs/positions.md): AttentionOptions, core/formulas/attention_operands.h. p_i is q_i
// unless `relative_query` is set, which may have another width than q.
//
// Reference: tests/reference/attention.cpp, attention()
#pragma once

#include "attention_terms.h"

namespace stretto {

/// Computes softmax attention: q [B, H, M, D], k [B, G, N, D], v [B, G, N, Dv] →
/// [B, H, M, Dv]. H is a multiple of G, and query head h uses key head ⌊h·G/H⌋. All tensors
/// have the same floating-point dtype.
///
/// In bf16, sums and softmax are f32 and the result is rounded once, at the end. If the processor
/// multiplies bf16 natively, the fused implementation also rounds the weights and the gradients of
/// the scores, as operands of matrix products. A query without visible keys gives zeros.
///
/// Keys and values that the mask hides from a query may have any values, including NaN and
/// infinity: they change neither the query's output nor any gradient through this output. The
/// output of a query that sees a NaN or an infinity may be NaN in all elements. A bias of −∞ does
/// not hide a key in this sense.
///
/// On a GPU this guarantee holds for key_padding only. In the fused implementation, a NaN or an
/// infinity in v that another setting of the mask hides reaches the outputs of the queries whose
/// tile of keys contains it, and one in k reaches the gradients of these queries. In the composed
/// implementation it reaches all queries of the head. In bf16 a GPU saves, for the backward pass,
/// the lse as one f32 and the rounding error of the output (cuda/attention/attention.h has the
/// error bound and the memory).
Tensor attention(const Tensor& q, const Tensor& k, const Tensor& v, AttentionOptions options = {});

/// The result of attention_with_lse().
struct AttentionWithLse {
  Tensor out;  ///< Output [B, H, M, Dv].
  Tensor lse;  ///< log Σ_j e^score(i, j) [B, H, M]; −∞ for a query without visible keys.
};
/// Computes attention to one chunk of the keys, with the log-sum-exp (lse) needed to merge chunks.
///
/// If out_c and l_c are the results for chunk c, and l = log Σ_c e^l_c, then attention to all keys
/// is Σ_c e^(l_c − l) out_c. Only the fused CPU implementation supports this, in f32 and f64 and
/// without sinks; otherwise it throws. Both results have gradients, which cannot be differentiated
/// again.
AttentionWithLse attention_with_lse(const Tensor& q, const Tensor& k, const Tensor& v,
                                    AttentionOptions options = {});

/// Returns the softmax weights [B, H, M, N] of the same attention, without dropout; for
/// plots and tests.
Tensor attention_weights(const Tensor& q, const Tensor& k, AttentionOptions options = {});
/// Returns the masked scores before softmax [B, H, M, N]: score(i, j), or −∞ for a hidden key.
Tensor attention_scores(const Tensor& q, const Tensor& k, AttentionOptions options = {});

}  // namespace stretto
