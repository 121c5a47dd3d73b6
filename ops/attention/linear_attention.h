// Linear attention: everything that never forms the scores. Queries and keys come as features, and
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

#include "core/tensor.h"

namespace stretto {

/// How linear attention is computed. `composed` has M × N products, in differentiable ops;
/// `chunked` takes the keys in chunks and keeps their sums, memory O((M + N)(F + Dv)), on the CPU,
/// and can be differentiated once. `automatic` is chunked wherever that can be.
enum class LinearForm { automatic, composed, chunked };

struct LinearAttentionOptions {
  bool causal = false;      // only keys at or before the query's position
  Tensor key_padding = {};  // [B, N] bool or u8, true = that key is in neither sum
  double eps = 0;           // added to the denominator (Katharopoulos et al.: 1e-6)
  int64_t chunk = 32;       // keys and queries that are taken together
  LinearForm form = LinearForm::automatic;
};

/// q [B, H, M, F], k [B, G, N, F], v [B, G, N, Dv] → [B, H, M, Dv]; H is a multiple of G and head h
/// uses key head ⌊h·G/H⌋. All of one floating dtype; sums are kept in f64 for f64, in f32 for
/// others.
///
/// A query whose denominator is exactly 0 (no key to see, or none that has a feature in common)
/// gives zeros and gets no gradient. A NaN in a feature reaches the queries that see it and no
/// others; one in v also queries that a zero weight hides it from: those before it in its chunk,
/// or, composed, all. Padded keys and their values may hold anything.
Tensor linear_attention(const Tensor& q, const Tensor& k, const Tensor& v,
                        LinearAttentionOptions options = {});

/// What linear attention has to know of the past: its sums over keys, of a size that does not
/// depend on their number. Every call that succeeds puts new sums in the place of the old ones,
/// which stay what they were for whoever has a copy.
struct LinearState {
  Tensor sums;  // Σ_j k_j [v_j, 1]ᵀ [B, G, F, Dv + 1], f64 or f32; undefined before any key
  int64_t length = 0;  // positions it has seen, padding included

  Tensor s() const;  // Σ_j k_j v_jᵀ [B, G, F, Dv], a view
  Tensor z() const;  // Σ_j k_j [B, G, F], a view
  /// Row i becomes what row rows[i] was: rows [n] (i64) may leave some out and repeat others.
  void reorder(const Tensor& rows);
};

/// The same for positions that continue those in `state`: all queries also see all keys in it, and
/// the new keys join it. One token at a time this is generation, in constant memory per token;
/// with no keys it reads a state that a context has left there. Causal needs M ≤ N then, unless
/// there are no keys at all. The composed form has gradients through the state; where they are
/// recorded, `automatic` is composed.
Tensor linear_attention(const Tensor& q, const Tensor& k, const Tensor& v, LinearState& state,
                        LinearAttentionOptions options = {});

}  // namespace stretto
