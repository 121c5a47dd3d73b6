// Layers of linear attention with decay as their papers write them: loops over positions, in double
// precision, with the parameters of a module.
//
//   Sun et al. 2023    Retentive Network
//   Yang et al. 2023   Gated Linear Attention Transformers
//   Yang et al. 2024   Gated Delta Networks
//   Dao & Gu 2024      Transformers are SSMs (Mamba-2)
//   Kimi Team 2025     Kimi Linear (Kimi Delta Attention)
#pragma once

#include "nn/attention/attention.h"
#include "nn/attention/gated_linear_attention.h"
#include "nn/attention/mamba2.h"

namespace stretto::reference {

/// Computes silu(Σ_j w_j x_{t − T + 1 + j} + bias) of each feature: x [B, N, C], weight [C, T], bias
/// [C] or undefined → f64 [B, N, C].
Tensor short_convolution(const Tensor& x, const Tensor& weight, const Tensor& bias = {});

/// Computes causal self-attention of x [B, N, d_model] with a GatedLinearKernel of these options and
/// no positional encoding → f64 [B, N, d_model].
Tensor gated_linear_layer(const nn::MultiHeadAttention& layer,
                          const nn::GatedLinearKernelOptions& options, const Tensor& x);

/// Computes Mamba-2's mixer of x [B, N, d_model] → f64 [B, N, d_model].
Tensor mamba2(const nn::Mamba2& mixer, const Tensor& x);

}  // namespace stretto::reference
