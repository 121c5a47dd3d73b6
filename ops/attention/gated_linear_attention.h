// Linear attention with decay: a recurrent state S [F, Dv] per head that forgets.
//
//   S_t = α_t S_{t−1} + k_t v_tᵀ                                  y_t = scale · q_t S_t
//   S_t = (I − β_t k_t k_tᵀ) α_t S_{t−1} + β_t k_t v_tᵀ           with the delta rule
//
//   decay α_t           models
//   none                linear attention without a denominator; DeltaNet with β
//   one per head        RetNet (Sun et al. 2023), Lightning Attention (Qin et al. 2024)
//   one per token       Mamba-2 (Dao & Gu 2024); Gated DeltaNet (Yang et al. 2024) with β
//   one per feature     GLA (Yang et al. 2023, α_t is diagonal); Kimi Delta Attention with β
//
// There is no denominator: the models normalize y, or do not.
//
// Reference: tests/reference/gated_linear_attention.cpp, gated_linear_attention()
#pragma once

#include <optional>

#include "linear_attention_terms.h"

namespace stretto {

/// Options of gated_linear_attention().
struct GatedLinearAttentionOptions {
  /// Logarithms of the decays, of any floating dtype: [H], one per head; [B, H, N], one per token
  /// and head; [B, H, N, F], one per feature too; undefined: no decay. 0 keeps the state, −∞
  /// clears it; values above 0 let it grow.
  Tensor log_decay = {};
  /// The delta rule (Schlag et al. 2021): β [B, H, N] of any floating dtype; undefined: none. Keys
  /// should have a norm of at most √(2 / β), otherwise the state may grow without limit.
  Tensor beta = {};
  /// Must be causal. Accepts key_padding, which leaves the state as it is, and `segments`, which
  /// clear it where the segment changes. A segment must be contiguous.
  AttentionMask mask = {.causal = true};
  std::optional<double> scale = {};  ///< Factor of the outputs; by default 1/√F.
  int64_t chunk = 64;                ///< Positions per chunk.
  Implementation implementation = Implementation::automatic;  ///< Composed or fused.
};

/// Computes linear attention with decay: q [B, ·, M, F], k [B, ·, N, F], v [B, ·, N, Dv] →
/// [B, H, M, Dv]. H is the largest of the three numbers of heads and a multiple of the others: head
/// h of H uses head ⌊h·G/H⌋ of G. The queries are the last M ≤ N of the N positions.
///
/// Time and memory are linear in N: a chunk is computed by matrix products, and only the state
/// passes from chunk to chunk. No factor is the quotient of two decays, so that decays may be 0.
/// The sums are f64 for f64, else f32. bf16 inputs are converted, and the result is rounded once.
/// The fused implementation needs O(N (F + Dv)) memory on the CPU, gradients included, and on a GPU
/// F Dv numbers for every 64 positions. There it serves f32 and bf16 with F up to 128, F and Dv
/// multiples of 4, in chunks of 64 positions for any options.chunk; anything else is composed.
///
/// Keys and values of padding may have any values. Those of another segment must be finite.
Tensor gated_linear_attention(const Tensor& q, const Tensor& k, const Tensor& v,
                              const GatedLinearAttentionOptions& options = {});

/// Computes the same for positions that continue a recurrent state; `state.sums` becomes S after
/// the last position. Requires M = N and no segments. Gradients go through the state.
Tensor gated_linear_attention(const Tensor& q, const Tensor& k, const Tensor& v, LinearState& state,
                              const GatedLinearAttentionOptions& options = {});

}  // namespace stretto
