// Linear attention of exponential features, which are given by their logarithms. For queries and
// keys so large that the features themselves would all be 0 or infinite. Internal to ops/ and nn/.
//
// Reference: tests/reference/linear_attention.cpp, linear_attention()
#pragma once

#include "linear_attention_terms.h"

namespace stretto {

/// Computes linear_attention() of the features exp(log_q) [B, H, M, F] and exp(log_k) [B, G, N, F]
/// on the CPU; all tensors are f64, v [B, G, N, Dv] too.
///
/// Each key feature is divided by its largest value among the keys so far, including those in
/// `state`. Each query is divided by its largest product with these values. Both divisors cancel
/// in the ratio of linear attention, and its denominator becomes at least 1. If causal,
/// positions are split into ranges so that no query underflows. Requires eps = 0, and M ≤ N if
/// causal with a state.
///
/// The state may be null. If it has no `shift`, its `sums` [B, G, F, Dv + 1] are sums of features
/// divided by e^log_divisor. The sums keep their dtype; those of an empty state get `type`.
Tensor linear_attention_of_logarithms(const Tensor& log_q, const Tensor& log_k, const Tensor& v,
                                      const LinearAttentionOptions& options, LinearState* state,
                                      double log_divisor, DType type);

}  // namespace stretto
