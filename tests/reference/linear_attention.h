// Linear attention as the papers write it: one short function per formula, in double precision.
//
//   Katharopoulos et al. 2020   Transformers are RNNs
#pragma once

#include "ops/attention/linear_attention.h"

namespace stretto::reference {

/// Computes eqs. 4 and 8 of Katharopoulos et al. as a sum over the keys for each query: features
/// q [B, H, M, F], k [B, G, N, F], values v [B, G, N, Dv] of any floating dtype → f64 [B, H, M,
/// Dv]. Options as in ops/attention/linear_attention.h.
Tensor linear_attention(const Tensor& queries, const Tensor& keys, const Tensor& values,
                        const LinearAttentionOptions& options = {});

/// Computes elu(x) + 1 elementwise (Katharopoulos et al., eq. 7).
Tensor elu_plus_one(const Tensor& x);
/// Computes relu(x) + epsilon elementwise (Choromanski et al. 2021, §4.1).
Tensor relu_plus(const Tensor& x, double epsilon);

}  // namespace stretto::reference
