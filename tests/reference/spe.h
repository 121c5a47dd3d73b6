// Stochastic positional encoding as the paper writes it, codes and all: one short function per
// equation, in double precision.
//
//   Liutkus et al. 2021   Relative Positional Encoding for Transformers with Linear Complexity
#pragma once

#include "core/tensor.h"

namespace stretto::reference {

/// (20, 21): Ω(n, f, θ) diag(λ twice upsampled) Z / √(2K) for positions first … first + n − 1, with
/// f = sigmoid(freqs)/2, λ = softplus(gains) [H, D, K], Z [H, D, 2K, R] → [H, D, n, R]. Queries
/// have θ = offsets; keys have none, where `offsets` is undefined.
Tensor sine_code(const Tensor& freqs, const Tensor& offsets, const Tensor& gains, const Tensor& z,
                 int64_t first, int64_t n);

/// (22): Σ_p w[p] z[m − p + P − 1] for filters [H, D, P1, P2], noise [H, D, R, n1, n2] and all
/// positions y·w + x from first to first + n − 1 of an image w wide → [H, D, n, R].
Tensor conv_code(const Tensor& filter, const Tensor& z, int64_t width, int64_t first, int64_t n);

/// (24, 25): √(1−δ) code + √δ ε, δ = sigmoid(gate) [H, D], ε [H, D, R].
Tensor gated_code(const Tensor& code, const Tensor& gate, const Tensor& epsilon);

/// (16, 17): x̂[r] = Σ_d x[d] code_d[r] / (DR)^¼ for x [B, H, n, D], code [H, D, n, R].
Tensor encoded(const Tensor& x, const Tensor& code);

/// The templates of lags −(n − 1) … n − 1 → [H, D, 2n − 1]: that of (20, 21) and of (22), and (23).
Tensor sine_template(const Tensor& freqs, const Tensor& offsets, const Tensor& gains, int64_t n);
Tensor conv_template(const Tensor& filter_q, const Tensor& filter_k, int64_t n);
Tensor gated_template(const Tensor& p, const Tensor& gate);

}  // namespace stretto::reference
