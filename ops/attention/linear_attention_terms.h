// Options and state of linear attention, and the checks that both of its implementations share.
//
// Reference: tests/reference/linear_attention.cpp, linear_attention()
#pragma once

#include "../../core/tensor.h"
#include "../implementation.h"
#include "mask.h"

namespace stretto {

/// The composed form has M × N products; the fused one takes the keys in chunks and keeps their
/// sums, memory O((M + N)(F + Dv)): on the CPU, and on a GPU where
/// cuda/attention/linear_attention.h serves.
struct LinearAttentionOptions {
  AttentionMask mask = {};  // causal and key_padding; windows and blocks would need scores
  double eps = 0;           // added to the denominator (Katharopoulos et al.: 1e-6)
  int64_t chunk = 32;       // keys and queries that are taken together, on the CPU
  Implementation implementation = Implementation::automatic;
};

/// What linear attention has to know of the past: its sums over keys, of a size that does not
/// depend on their number. Every call that succeeds puts new sums in the place of the old ones,
/// which stay what they were for whoever has a copy.
struct LinearState {
  Tensor sums;  // Σ_j k_j [v_j, 1]ᵀ [B, G, F, Dv + 1], f64 or f32; undefined before any key
  int64_t length = 0;  // positions it has seen, padding included
  /// Logarithms of what each feature was divided by before it joined the sums, [B, G, F] in f64
  /// (nn::LinearKernel); undefined: as it came.
  Tensor shift = {};

  Tensor s() const;  // Σ_j k_j v_jᵀ [B, G, F, Dv], a view
  Tensor z() const;  // Σ_j k_j [B, G, F], a view
  /// Row i becomes what row rows[i] was: rows [n] (i64) may leave some out and repeat others.
  void reorder(const Tensor& rows);
};

/// Throws an Error of `linear_attention` unless the arguments fit together, and with a state.
void check_linear_attention(const Tensor& q, const Tensor& k, const Tensor& v,
                            const LinearAttentionOptions& options);
void check_linear_state(const Tensor& q, const Tensor& k, const Tensor& v, const LinearState& state,
                        const LinearAttentionOptions& options);

}  // namespace stretto
