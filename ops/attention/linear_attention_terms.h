// Options and state of linear attention, and the checks that its implementations share.
//
// Reference: tests/reference/linear_attention.cpp, linear_attention()
#pragma once

#include "../../core/formulas/implementation.h"
#include "../../core/tensor.h"
#include "mask.h"

namespace stretto {

/// Options of linear_attention().
///
/// The composed implementation stores M × N products. The fused implementation processes the keys
/// in chunks and keeps running sums, so its memory is O((M + N)(F + Dv)); it runs on the CPU, and
/// on a GPU for the sizes in cuda/attention/linear_attention.h.
struct LinearAttentionOptions {
  AttentionMask mask = {};  ///< Only causal and key_padding: window and block would need scores.
  double eps = 0;           ///< Added to the denominator (Katharopoulos et al.: 1e-6).
  int64_t chunk = 32;       ///< Positions per chunk on the CPU; a GPU uses 64.
  Implementation implementation = Implementation::automatic;  ///< Composed or fused.
};

/// The recurrent state of linear attention: sums over past keys, of a size independent
/// of their number.
///
/// A successful call of linear_attention() or gated_linear_attention() replaces the sums by new
/// tensors, so a copy of the state stays valid.
struct LinearState {
  /// Σ_j k_j [v_j, 1]ᵀ [B, G, F, Dv + 1], f64 for f64, else f32; undefined before the first key.
  /// For gated_linear_attention(): S [B, H, F, Dv].
  Tensor sums;
  int64_t length = 0;  ///< Number of positions seen, including padding.
  /// Logarithm of the divisor of each feature in the sums, f64 [B, G, F] (nn::LinearKernel);
  /// undefined: not divided.
  Tensor shift = {};
  /// The last inputs of short convolutions [B, T − 1, C] (nn::GatedLinearKernel); undefined: none.
  Tensor history = {};

  /// Returns Σ_j k_j v_jᵀ [B, G, F, Dv], a view. For the sums of linear_attention() only: those of
  /// gated_linear_attention() have no last column Σ_j k_j.
  Tensor s() const;
  /// Returns Σ_j k_j [B, G, F], a view. For the sums of linear_attention() only.
  Tensor z() const;
  /// Replaces batch entry i by the previous batch entry rows[i], with rows [n] i64; entries may be
  /// repeated or left out (beam search).
  void reorder(const Tensor& rows);
};

/// Throws an Error of `linear_attention` unless the arguments fit together.
void check_linear_attention(const Tensor& q, const Tensor& k, const Tensor& v,
                            const LinearAttentionOptions& options);
/// Throws an Error of `linear_attention` unless the arguments, checked as above, fit the state.
void check_linear_state(const Tensor& q, const Tensor& k, const Tensor& v, const LinearState& state,
                        const LinearAttentionOptions& options);

}  // namespace stretto
