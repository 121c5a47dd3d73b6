// One long sequence held by several processes: process r of n has positions r·L/n … (r+1)·L/n − 1
// of each, and attention, causal, is that of the whole.
//
// What acts on positions one by one needs at most its first position (sinusoids(first), SpeOptions'
// `first`). Gradients of parameters are those of this process's positions: their sum over processes
// is the gradient of the whole. All processes make the same calls, and differentiate them alike,
// once.
#pragma once

#include <utility>

#include "../../ops/attention/attention.h"
#include "../../ops/attention/linear_attention.h"
#include "process_group.h"

namespace stretto::nn {

/// The sum of x over all processes before this one, zeros on the first; of one shape and floating
/// dtype on all, f32 or f64, on the CPU. Its gradient is the sum over all processes after.
Tensor exclusive_prefix_sum(const Tensor& x, ProcessGroup& group = process_group());

/// The last n positions before this process's, as far as there are, and then its own: x [B, G, M,
/// D] → [B, G, min(n, r M) + M, D] on process r; f32 or f64, on the CPU. Its gradient goes back to
/// whose rows they are.
Tensor with_left_halo(const Tensor& x, int64_t n, ProcessGroup& group = process_group());

/// The keys and values of all processes before, and then this one's: k [B, G, M, D], v [B, G, M,
/// Dv] → N = (r + 1) M of each on process r. attention() of them and of this process's queries is
/// that of the whole, whatever its bias is made of, in memory O(M N) where that is dense. Options
/// as for sequence_parallel_attention, but with a dense bias.
std::pair<Tensor, Tensor> gather_left_kv(const Tensor& k, const Tensor& v,
                                         const AttentionOptions& options,
                                         ProcessGroup& group = process_group());

/// linear_attention (ops/attention/linear_attention.h) of the whole sequence, of which q [B, H, M,
/// F], k [B, G, M, F] and v [B, G, M, Dv] are this process's positions → [B, H, M, Dv]. Needs
/// mask.causal. What is sent is Σ_j k_j [v_j, 1]ᵀ [B, G, F, Dv + 1], whatever the length; memory is
/// O(M (F + Dv + chunk) + M/chunk · F Dv). Katharopoulos et al. 2020, eqs. 18–20, across processes.
Tensor sequence_parallel_linear_attention(const Tensor& q, const Tensor& k, const Tensor& v,
                                          LinearAttentionOptions options,
                                          ProcessGroup& group = process_group());

/// attention (ops/attention/attention.h) of the whole sequence, of which q [B, H, M, D], k [B, G,
/// M, D], v [B, G, M, Dv] and the position query are this process's positions → [B, H, M, Dv]. f32
/// and f64 on the CPU, causal, with tables over relative positions; padding, dense biases and
/// dropout of the weights are refused.
///
/// With a window or blocks a process is sent the keys and values that its own positions see and no
/// others, of so many processes before as they lie on; memory is O((M + window) (D + Dv)). Without,
/// keys and values go from each process to all after it, one process's at a time, and again for the
/// gradient, which comes back the same way; an earlier process's keys are met with the tables moved
/// by its distance. Memory is O(M (D + Dv)) beside the tables.
Tensor sequence_parallel_attention(const Tensor& q, const Tensor& k, const Tensor& v,
                                   AttentionOptions options, ProcessGroup& group = process_group());

}  // namespace stretto::nn
