// Linear attention with decay as the papers write it: a recurrence, in double precision.
//
//   Sun et al. 2023         Retentive Network
//   Yang et al. 2023        Gated Linear Attention Transformers
//   Dao & Gu 2024           Transformers are SSMs (Mamba-2)
//   Yang et al. 2024        Parallelizing Linear Transformers with the Delta Rule;
//                           Gated Delta Networks
#pragma once

#include "ops/attention/gated_linear_attention.h"

namespace stretto::reference {

/// Computes S_t = (I − β_t k_t k_tᵀ) Diag(α_t) S_{t−1} + β_t k_t v_tᵀ and y_t = scale · q_t S_t, one
/// position after the other, with β = 1 and without the matrix in front if there is no delta rule.
/// Arguments and options as in ops/attention/gated_linear_attention.h, of any floating dtype →
/// f64 [B, H, M, Dv]. `state` [B, H, F, Dv], if given, is the state before the first position and
/// is replaced by the last one.
Tensor gated_linear_attention(const Tensor& queries, const Tensor& keys, const Tensor& values,
                              const GatedLinearAttentionOptions& options = {},
                              Tensor* state = nullptr);

}  // namespace stretto::reference
