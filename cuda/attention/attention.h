// Fused softmax attention on the device (ops/attention/attention.h) on tensor cores: bf16 with D
// and Dv up to 128, f32 up to 64, multiples of 8; sums in f32, memory O((M + N) D) beside a dense
// bias and its gradient.
#pragma once

#include "../../ops/attention/attention_terms.h"
#include "../runtime/kernel.h"

namespace stretto::cuda {

// A call is AttentionOperands in the form that kernels read: rows of all operands are contiguous
// and begin at multiples of 16 bytes; `scale` is set; tables have zeros for what is beyond them
// (but in attention_decode) and are in q's dtype, or undefined if they have no rows; relative_bias
// is f32, contiguous and divided by the scale; bias has four dimensions, any strides; key_padding
// is u8, contiguous.

/// What backward needs of forward besides the output. Memory: in bf16 that of the output and 4
/// bytes for each of the B H M queries; in f32 8 bytes for each query.
struct AttentionSaved {
  /// f32. For f32 [2, B, H, M]: the number that is subtracted from a row's exponents of 2, ∞ where
  /// the query sees nothing, and 1 / Σ weights. For bf16 [B, H, M]: log₂ Σ 2^(score · log₂ e), ∞
  /// where the query sees nothing. This one number has no room for a large score and the sum: all
  /// weights of a row are off by some 2⁻²³ times its largest score, relatively. For scores up to
  /// 1e4 this is less than the rounding of each weight to bf16, 2⁻⁹.
  Tensor sums;
  /// bf16 [B, H, M, Dv], row-major, only for bf16: the output before rounding less the output.
  Tensor rest;
};

/// Whether the kernels serve these sizes and types.
STRETTO_KERNEL(bool attention_takes(const AttentionOperands& call));
/// Writes out [B, H, M, Dv]. Returns what backward needs if `for_backward`, else nothing.
STRETTO_KERNEL(AttentionSaved attention(const AttentionOperands& call, const Tensor& out,
                                        bool for_backward));
/// From the output, what attention() returned, and the output's gradient, which lies as operands
/// do. `into`: those of q, k, v and, if the call has one, relative_query are given, as they are to
/// be laid out, and written; bias is given if it is wanted, as f32 zeros of the bias's sizes,
/// contiguous; those of keys, values and relative_bias are made, in f32, contiguous, if
/// `of_tables`. In bf16 δ = Σ g·(O + rest), so that gradients of scores that should cancel are
/// about 2⁻¹⁷ Σ |g·O| times their weight.
STRETTO_KERNEL(void attention_backward(const AttentionOperands& call, const Tensor& out,
                                       const AttentionSaved& saved, const Tensor& grad,
                                       bool of_tables, AttentionOperands& into));

}  // namespace stretto::cuda
