// Sequence parallelism: rank r of n holds the positions r·L/n … (r+1)·L/n − 1 of each sequence, and
// causal attention is that of the whole sequence.
//
// Operations on single positions need at most the rank's first position (sinusoids(first),
// SpeOptions' `first`). Parameter gradients are those of this rank's positions; their sum over the
// ranks is the gradient for the whole sequence. All processes make the same calls and run the same
// backward pass. There are no second derivatives.
#pragma once

#include <utility>

#include "../../ops/attention/attention.h"
#include "../../ops/attention/linear_attention.h"
#include "process_group.h"

namespace stretto::nn {

/// Returns the sum of x over all lower ranks; zeros on rank 0. x has the same shape and dtype, f32
/// or f64, on all ranks and is on the CPU. The gradient is the sum over all higher ranks.
Tensor exclusive_prefix_sum(const Tensor& x, ProcessGroup& group = process_group());

/// Prepends a halo, the last n positions of the lower ranks (fewer if there are not as many), to
/// this rank's positions: x [B, G, M, D] → [B, G, min(n, r M) + M, D] on rank r; f32 or f64 on the
/// CPU. Gradients of halo positions are added on the ranks that own them.
Tensor with_left_halo(const Tensor& x, int64_t n, ProcessGroup& group = process_group());

/// Gathers the keys and values of all lower ranks before this rank's: k [B, G, M, D], v [B, G, M,
/// Dv] → N = (r + 1) M positions of each on rank r. attention() of this rank's queries and the
/// result is attention over the whole sequence, with any bias; a dense bias takes O(M N) memory.
/// Options as for sequence_parallel_attention(), except that a dense bias is accepted.
std::pair<Tensor, Tensor> gather_left_kv(const Tensor& k, const Tensor& v,
                                         const AttentionOptions& options,
                                         ProcessGroup& group = process_group());

/// Computes linear_attention (ops/attention/linear_attention.h) over the whole sequence: q [B, H,
/// M, F], k [B, G, M, F] and v [B, G, M, Dv] are this rank's positions → [B, H, M, Dv]. Needs
/// mask.causal and no key_padding. Sends Σ_j k_j [v_j, 1]ᵀ [B, G, F, Dv + 1], independent of the
/// length. Memory: O(M (F + Dv + chunk) + M/chunk · F Dv). Katharopoulos et al. 2020, eqs. 18–20.
Tensor sequence_parallel_linear_attention(const Tensor& q, const Tensor& k, const Tensor& v,
                                          LinearAttentionOptions options,
                                          ProcessGroup& group = process_group());

/// Computes attention (ops/attention/attention.h) over the whole sequence: q [B, H, M, D], k [B, G,
/// M, D], v [B, G, M, Dv] and options.relative_query are this rank's positions → [B, H, M, Dv].
/// Requires a causal mask, and f32 or f64 on the CPU; supports tables over relative positions.
/// Throws Error for key_padding, segments and other masks that are tensors, window_after, sinks, a
/// dense bias and dropout of the weights.
///
/// With a window or blocks, a rank receives only the keys and values that its own positions attend
/// to, from as many lower ranks as needed (with_left_halo); memory is O((M + window) (D + Dv)).
///
/// Otherwise every rank receives the keys and values of all lower ranks, one rank's chunk at a
/// time, as in ring attention; the outputs for the chunks are merged by their lse (log-sum-exp of
/// the scores). The backward pass exchanges the chunks again and sends their gradients back. For
/// the keys of a lower rank the tables are shifted by the distance in positions. Memory is
/// O(M (D + Dv)), plus the tables.
Tensor sequence_parallel_attention(const Tensor& q, const Tensor& k, const Tensor& v,
                                   AttentionOptions options, ProcessGroup& group = process_group());

}  // namespace stretto::nn
