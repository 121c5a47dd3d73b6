// Rotary positions as the papers write them, by loops in double precision.
//
//   Su et al. 2021    RoFormer: Enhanced Transformer with Rotary Position Embedding
//   Sun et al. 2023   A Length-Extrapolatable Transformer (xPos)
#pragma once

#include <cstdint>
#include <vector>

#include "core/tensor.h"
#include "ops/attention/rotary.h"

namespace stretto::reference {

/// Each pair of x [B, H, L, D] as a complex number, multiplied by e^(i t θ), row l at position
/// t = first + l (Su et al., eq. 12 and 15). Without xpos.
Tensor rotated(const Tensor& x, int64_t first, const RotaryOptions& options);

/// q·k of turned queries q [B, H, M, D] and keys k [B, G, N, D] without turning either: with the
/// lag l = i + N − M − j, Σ Re(q_n k̄_n e^(i l θ_n)) · ζ_n^(l / scale_base) over the pairs n, plus
/// the products of what does not turn (Su et al., eq. 12; Sun et al.; ζ = 1 without xpos).
/// → [B, H, M, N].
Tensor rotary_scores(const Tensor& q, const Tensor& k, const RotaryOptions& options);

/// What Hugging Face's modeling_rope_utils.py computes for "llama3" and for "yarn", step by step.
std::vector<double> llama3_rates(const Llama3Scaling& scaling);
std::vector<double> yarn_rates(const YarnScaling& scaling);

}  // namespace stretto::reference
