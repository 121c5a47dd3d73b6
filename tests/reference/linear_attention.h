// Linear attention as the papers write it: one short function per formula, in double precision.
//
//   Katharopoulos et al. 2020   Transformers are RNNs
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

}  // namespace stretto::reference
