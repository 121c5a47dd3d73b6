// Linear attention of features that are exponentials, from their logarithms: for queries and keys
// so large that the features themselves would all be 0 or infinite. Internal to ops/ and nn/.
//
// Reference: tests/reference/linear_attention.cpp, linear_attention()
#pragma once

#include "linear_attention_terms.h"

namespace stretto {

/// linear_attention() of the features exp(log_q) [B, H, M, F] and exp(log_k) [B, G, N, F], on the
/// CPU; all f64, v [B, G, N, Dv] too. Each feature is divided by its largest value among the keys
/// so far, in `state` too, and each query's by its largest product with these: both cancel in the
/// ratio, and its denominator is 1 or more. Causal, positions are cut into ranges in which that
/// loses none of them. Needs eps 0 and M ≤ N where a causal call has a state.
///
/// `sums` [B, G, F, Dv + 1] of a state without `shift` are of features divided by e^less. The state
/// may be null; it is left in its dtype, or where it was empty in `type`.
Tensor linear_attention_of_logarithms(const Tensor& log_q, const Tensor& log_k, const Tensor& v,
                                      const LinearAttentionOptions& options, LinearState* state,
                                      double less, DType type);

}  // namespace stretto
