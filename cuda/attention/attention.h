// Fused softmax attention on the device (ops/attention/attention.h) on tensor cores: bf16 with D
// and Dv up to 128, f32 up to 64, multiples of 8; sums in f32, memory O((M + N) D) beside a dense
// bias and its gradient.
#pragma once

#include <optional>

#include "../../core/random.h"
#include "../runtime/kernel.h"

namespace stretto::cuda {

/// One call. Rows of all operands are contiguous and begin at multiples of 16 bytes.
struct AttentionCall {
  Tensor q, k, v;        // [B, H, M, D], [B, G, N, D], [B, G, N, Dv]
  Tensor position = {};  // [B, H, M, D]; q where undefined
  // [H or 1, R, D]: row `zero_row` + r is for relative position r; others have zeros.
  Tensor rows = {};
  // f32 [H or 1, W], over the scale: for relative positions `first` …; others have 0.
  Tensor lag_bias = {};
  Tensor value_rows = {};  // [H or 1, R, Dv], added to the values; as `rows`, from `value_zero_row`
  Tensor bias = {};        // [B or 1, H or 1, M or 1, N or 1], added to the scores; any strides
  Tensor padding = {};     // u8 [B, N]
  int64_t zero_row = 0, first = 0, value_zero_row = 0;
  bool causal = false;
  int64_t window = 0, block = 0;  // 0: none; block needs causal
  double scale = 1;               // > 0
  double dropout = 0;
  std::optional<RandomKey> dropout_key = {};
};

/// q, k, v and, where the call has one, position: given, as they are to be laid out, and written.
/// rows, lag_bias and value_rows: made, in f32, contiguous. bias: where it is wanted, given as f32
/// zeros of the bias's sizes, contiguous.
struct AttentionGradients {
  Tensor q, k, v, position = {}, rows = {}, lag_bias = {}, value_rows = {}, bias = {};
};

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
STRETTO_KERNEL(bool attention_takes(const AttentionCall& call));
/// Writes out [B, H, M, Dv]. Returns what backward needs if `for_backward`, else nothing.
STRETTO_KERNEL(AttentionSaved attention(const AttentionCall& call, const Tensor& out,
                                        bool for_backward));
/// From the output, what attention() returned, and the output's gradient, which lies as operands
/// do. Those of rows, lag_bias and value_rows only where `of_tables`. In bf16 δ = Σ g·(O + rest),
/// so that gradients of scores that should cancel are about 2⁻¹⁷ Σ |g·O| times their weight.
STRETTO_KERNEL(void attention_backward(const AttentionCall& call, const Tensor& out,
                                       const AttentionSaved& saved, const Tensor& grad,
                                       bool of_tables, AttentionGradients& into));

}  // namespace stretto::cuda
