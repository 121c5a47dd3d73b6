// Fused softmax attention on the device (ops/attention/attention.h) on tensor cores: bf16 with D, Dv
// and P (the width of relative_query) up to 128, f32 up to 64, in multiples of 8. Sums in f32; memory
// O((M + N) D), apart from a dense bias and its gradient.
#pragma once

#include "../../core/formulas/attention_operands.h"
#include "../runtime/kernel.h"

namespace stretto::cuda {

// AttentionOperands are passed as the kernels read them: rows of all operands are contiguous and
// begin at multiples of 16 bytes; `scale` is set; relative positions out of a table's range add
// zero (attention_decode can also clip them); tables are in q's dtype, or undefined if they have no
// rows; relative_bias is f32, contiguous and divided by the scale; bias and hidden have four
// dimensions, any strides; sinks are f32, contiguous, times log₂ e; key_padding and global_tokens are
// u8, prefix_lengths i64 and segments i64 or i32, all contiguous.
//
// Plain kernels serve causal, window, window_after without global tokens, block and key_padding;
// sinks too, with which a row's sum of weights begins. Prefixes, global tokens, segments, hidden keys
// and the soft cap have kernels of their own, compiled with AttentionTile::extended, so that they cost
// the plain ones nothing. attention_mask.cuh describes how these skip tiles that are wholly hidden.
// As in the plain ones, a NaN or an infinity in a hidden key or value reaches the queries whose tile
// contains it and is not skipped.

/// The results of forward, besides the output, that backward needs. Memory: in bf16 that of the
/// output and 4 bytes for each of the B · H · M queries; in f32 8 bytes per query.
struct AttentionSaved {
  /// f32. For f32 [2, B, H, M]: the number that is subtracted from a row's exponents of 2, ∞ if the
  /// query sees no key, and 1 / Σ weights. For bf16 [B, H, M]: the log-sum-exp log₂ Σ 2^(score ·
  /// log₂ e), ∞ if the query sees no key. This single number cannot represent a large score and the
  /// sum exactly: all weights of a row have a relative error of about 2⁻²³ times the row's largest
  /// score. For scores up to 1e4 this is less than the rounding of each weight to bf16, 2⁻⁹.
  Tensor sums;
  /// bf16 [B, H, M, Dv], row-major, bf16 only: the output before rounding minus the output.
  Tensor rest;
};

/// True if the kernels support these sizes and dtypes.
STRETTO_KERNEL(bool attention_takes(const AttentionOperands& inputs));
/// Writes out [B, H, M, Dv]. Returns what backward needs if `for_backward`, else undefined tensors.
STRETTO_KERNEL(AttentionSaved attention(const AttentionOperands& inputs, const Tensor& out,
                                        bool for_backward));
/// Backward, from the output, the result of attention(), and the output's gradient, laid out like
/// an operand. In `into` the caller passes q, k, v and, if the inputs have one, relative_query,
/// laid out as wanted, to which the gradients are written, and, if its gradient is wanted, bias:
/// contiguous f32 zeros of the bias's sizes. If `of_tables`, the gradients of relative_keys,
/// relative_values and relative_bias are written to the tables in `into`, contiguous and of any
/// floating dtype; a table that `into` does not have is allocated in f32. In bf16 the sum Σ g·O of a
/// row (FlashAttention's D) is computed as Σ g·(O + rest), so that gradients of scores that should
/// cancel are about 2⁻¹⁷ Σ |g·O| times their weight.
STRETTO_KERNEL(void attention_backward(const AttentionOperands& inputs, const Tensor& out,
                                       const AttentionSaved& saved, const Tensor& grad,
                                       bool of_tables, AttentionOperands& into));

}  // namespace stretto::cuda
