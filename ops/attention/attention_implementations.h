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

/// The papers' formulas in differentiable ops, on any device. `huge`: values that the mask hides
/// may be so large that their products with gradients overflow.
Tensor composed_attention(const AttentionOperands& x, bool huge = false);
/// Its scores before softmax [B, H, M, N], −∞ where a key is not seen; v is not used.
Tensor composed_scores(const AttentionOperands& x);

/// Whether the fused form on the CPU computes in this dtype as it is: bf16 where there are products
/// of bf16 (core/gemm/gemm.h).
bool fused_attention_takes(DType type);
/// The fused form on the CPU.
Tensor fused_attention(const AttentionOperands& x);
/// The same, and log Σ_j e^score(i, j) of each query [B, H, M], in f64 for f64, else f32, −∞ where
/// it sees no key: what parts of the keys need to be put together. Both have gradients, once.
Tensors fused_attention_with_lse(const AttentionOperands& x);

/// The fused form on a GPU (cuda/attention/attention.h); nothing where it has no kernel for the
/// arguments, which are the composed form's then.
std::optional<Tensor> cuda_attention(const AttentionOperands& x);

/// A call as the closure of its gradient keeps it.
class SavedAttention {
 public:
  explicit SavedAttention(const AttentionOperands& x);
  AttentionOperands operator()() const { return settings_.with(values_of(tensors_)); }
  /// Gradients of the composed form, which can be differentiated again, computed in f32 for bf16.
  Tensors composed_gradients(Backward& b) const;

 private:
  AttentionOperands settings_;  // without tensors
  std::vector<Saved> tensors_;
};

}  // namespace stretto
