// Linear attention of exponential features, given by their logarithms: for queries and keys so
// large that the features themselves would all be 0 or infinite. Internal to ops/ and nn/.
//
// Reference: tests/reference/linear_attention.cpp, linear_attention()
#pragma once

#include "linear_attention_terms.h"

namespace stretto {

/// Computes linear_attention() of the features exp(log_q) [B, H, M, F] and exp(log_k) [B, G, N, F]
/// on the CPU; all tensors are f64, v [B, G, N, Dv] too.
///
/// Each key feature is divided by its largest value among the keys so far, including those in
/// `state`, and each query by its largest product with these. Both divisors cancel in the ratio,
/// and its denominator is at least 1. If causal, positions are split into ranges so that no query
/// underflows. Requires eps = 0, and M ≤ N if causal with a state.
///
/// If the state has no `shift`, its `sums` [B, G, F, Dv + 1] are of features divided by
/// e^log_divisor. The state may be null. It keeps its dtype; an empty one gets `type`.
Tensor linear_attention_of_logarithms(const Tensor& log_q, const Tensor& log_k, const Tensor& v,
                                      const LinearAttentionOptions& options, LinearState* state,
                                      double log_divisor, DType type);

}  // namespace stretto
