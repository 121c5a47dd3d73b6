// The implementations of attention(), which checks the arguments, completes the options with a
// dropout key, and chooses one. Internal to ops/ and nn/.
//
// Reference: tests/reference/attention.cpp, attention(), attention_weights()
#pragma once

#include <optional>
#include <vector>

#include "../../autograd/tape.h"
#include "attention_terms.h"

namespace stretto {

/// The composed implementation: the papers' formulas in differentiable ops, on any
/// device. `huge`: values hidden by the mask may be so large that their products with gradients
/// overflow.
Tensor composed_attention(const AttentionOperands& x, bool huge = false);
/// Returns the scores of the composed implementation before softmax [B, H, M, N], −∞ for hidden
/// keys; v is not used.
Tensor composed_scores(const AttentionOperands& x);

/// Returns the softmax weights [B, H, M, N] of scores [B, H, M, N] and, if defined, of the sinks
/// [H].
Tensor softmax_with_sinks(const Tensor& scores, const Tensor& sinks);

/// True if the fused CPU implementation computes in this dtype without conversion: bf16 only if the
/// CPU multiplies bf16 (core/gemm/gemm.h).
bool fused_attention_takes(DType type);
/// The fused implementation on the CPU.
Tensor fused_attention(const AttentionOperands& x);
/// Returns {output, lse} of the fused implementation on the CPU. lse is log Σ_j e^score(i, j)
/// [B, H, M], in f64 for f64, else f32, −∞ for a query without visible keys. Both results can
/// be differentiated once.
Tensors fused_attention_with_lse(const AttentionOperands& x);

/// The fused implementation on a GPU (cuda/attention/attention.h). Returns nothing if there is no
/// kernel for the arguments; the caller then uses the composed implementation.
std::optional<Tensor> cuda_attention(const AttentionOperands& x);

/// Tensors and options of attention(), saved for the backward pass.
class SavedAttention {
 public:
  explicit SavedAttention(const AttentionOperands& x);
  AttentionOperands operator()() const { return settings_.with(values_of(tensors_)); }
  /// Returns the gradients computed by the composed implementation, which can be differentiated
  /// again; bf16 is computed in f32.
  Tensors composed_gradients(Backward& b) const;

 private:
  AttentionOperands settings_;  // options, without the tensors
  std::vector<Saved> tensors_;
};

}  // namespace stretto
