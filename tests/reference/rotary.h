// Rotary positions as the papers write them, by loops in double precision.
//
//   Su et al. 2021    RoFormer: Enhanced Transformer with Rotary Position Embedding
//   Sun et al. 2023   A Length-Extrapolatable Transformer (xPos)
//   Heo et al. 2024   Rotary Position Embedding for Vision Transformer
#pragma once

#include <cstdint>
#include <vector>

#include "core/tensor.h"
#include "ops/attention/rotary.h"

namespace stretto::reference {

/// Multiplies each pair of features of x [B, H, L, D], as a complex number, by e^(i t θ_n), where
/// row l is at position t = first + l (Su et al., eqs. 12 and 15) → f64 [B, H, L, D]. Ignores xpos.
Tensor rotated(const Tensor& x, int64_t first, const RotaryOptions& options);

/// Multiplies the pairs of x [B, H, height · width, D], cells of a plane in row-major order, as complex
/// numbers of features 2i and 2i + 1: those of the first half of the features by e^(i x θ_n), those
/// of the second half by e^(i y θ_n), for the cell in column x and row y, with θ_n = base^(−4n/D)
/// (Heo et al., §3.2, "axial") → f64.
Tensor rotated_2d(const Tensor& x, int64_t width, double base);

/// Computes the products of rotated queries and keys without rotating either: q [B, H, M, D],
/// k [B, G, N, D] → [B, H, M, N]. With the distance l = i + N − M − j they are
/// Σ_n Re(q_n k̄_n e^(i l θ_n)) · ζ_n^(l / scale_base) over the pairs n, plus the products of the
/// features that are not rotated (Su et al., eq. 12; Sun et al.; ζ = 1 without xpos).
Tensor rotary_scores(const Tensor& q, const Tensor& k, const RotaryOptions& options);

/// Returns the frequencies of LLaMA 3.1, step by step as Hugging Face's modeling_rope_utils.py
/// computes them for "llama3".
std::vector<double> llama3_rates(const Llama3Scaling& scaling);
/// Returns the frequencies of YaRN (Peng et al. 2024, §3.2), step by step as the same file computes
/// them for "yarn".
std::vector<double> yarn_rates(const YarnScaling& scaling);

}  // namespace stretto::reference
