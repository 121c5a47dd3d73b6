// Stochastic positional encoding as the paper writes it, with the random codes in memory: one short
// function per equation, in double precision. Numbers in parentheses are the paper's equations; H
// heads, head dimension D, R realizations of the noise, K sines.
//
//   Liutkus et al. 2021   Relative Positional Encoding for Transformers with Linear Complexity
#pragma once

#include "core/tensor.h"

namespace stretto::reference {

/// Computes the code of sineSPE (20, 21), Ω(n, f, θ) diag(λ, each twice) Z / √(2K), for the
/// positions first … first + n − 1: f = sigmoid(freqs)/2 and λ = softplus(gains) [H, D, K], noise
/// Z [H, D, 2K, R] → [H, D, n, R]. θ is `offsets` for queries and 0 for keys, whose `offsets` are
/// left undefined.
Tensor sine_code(const Tensor& freqs, const Tensor& offsets, const Tensor& gains, const Tensor& z,
                 int64_t first, int64_t n);

/// Computes the code of convSPE (22), Σ_p w[p] z[m − p + P − 1], for the positions
/// first … first + n − 1 of an image of `width` columns, row by row: filters [H, D, P1, P2], noise
/// [H, D, R, n1, n2] → [H, D, n, R].
Tensor conv_code(const Tensor& filter, const Tensor& z, int64_t width, int64_t first, int64_t n);

/// Computes a gated code (24, 25), √(1−δ) code + √δ ε, with δ = sigmoid(gate) [H, D] and noise
/// ε [H, D, R] that is the same at all positions: code [H, D, n, R] → [H, D, n, R].
Tensor gated_code(const Tensor& code, const Tensor& gate, const Tensor& epsilon);

/// Encodes queries or keys (16, 17), x̂[r] = Σ_d x[d] code_d[r] / (DR)^¼: x [B, H, n, D],
/// code [H, D, n, R] → [B, H, n, R].
Tensor encoded(const Tensor& x, const Tensor& code);

/// A template is the covariance P_d(τ) of the codes of query and key at the position differences
/// τ = −(n − 1) … n − 1.
///
/// Computes the template of sineSPE, that of the codes (20, 21) → [H, D, 2n − 1].
Tensor sine_template(const Tensor& freqs, const Tensor& offsets, const Tensor& gains, int64_t n);
/// Computes the template of convSPE, that of the codes (22), in one dimension → [H, D, 2n − 1].
Tensor conv_template(const Tensor& filter_q, const Tensor& filter_k, int64_t n);
/// Computes the template with a gate (23), (1 − δ) P_d + δ with δ = sigmoid(gate) [H, D].
Tensor gated_template(const Tensor& p, const Tensor& gate);

}  // namespace stretto::reference
