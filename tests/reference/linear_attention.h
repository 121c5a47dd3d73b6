// Linear attention as the papers write it: one short function per formula, in double precision.
//
//   Katharopoulos et al. 2020   Transformers are RNNs
//   Choromanski et al. 2021     Rethinking Attention with Performers
#pragma once

#include "ops/attention/linear_attention.h"

namespace stretto::reference {

/// Eqs. 4 and 8 of Katharopoulos et al., a sum over keys for each query, for features q, k of any
/// floating dtype; result f64. Options as in ops/attention/linear_attention.h.
Tensor linear_attention(const Tensor& queries, const Tensor& keys, const Tensor& values,
                        const LinearAttentionOptions& options = {});

/// elu(x) + 1 (Katharopoulos et al., eq. 7), relu(x) + epsilon.
Tensor elu_plus_one(const Tensor& x);
Tensor relu_plus(const Tensor& x, double epsilon);

/// h(x') / √m [f_1(ω_1·x') … f_1(ω_m·x'), …, f_l(ω_m·x')] with x' = x·D^(−1/4) (Choromanski et al.,
/// eq. 5), x [B, H, L, D], ω the rows of `projection` [m, D]: the features of the softmax kernel by
/// eq. 7, left (positive) and right (hyperbolic: m becomes 2m), and eq. 6 (trigonometric).
Tensor positive_features(const Tensor& x, const Tensor& projection);
Tensor hyperbolic_features(const Tensor& x, const Tensor& projection);
Tensor trigonometric_features(const Tensor& x, const Tensor& projection);

}  // namespace stretto::reference
