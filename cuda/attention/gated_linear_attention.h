// Linear attention with decay on the device: forward and backward.
#pragma once

#include "../runtime/kernel.h"

namespace stretto::cuda {

/// True if the functions below support q [B, ·, N, F], k [B, ·, N, F] and v [B, ·, N, Dv]: f32,
/// F ≤ 128, F and Dv multiples of 4, no empty tensor.
STRETTO_KERNEL(bool serves_gated_linear_attention(const Tensor& q, const Tensor& k,
                                                  const Tensor& v));
/// The number of parts of Dv columns that the kernels compute separately for F features.
STRETTO_KERNEL(int64_t gated_linear_parts(int64_t f, int64_t dv));

/// The number of positions per chunk.
constexpr int64_t gated_linear_chunk = 64;

/// q, k and v have the same number of positions and H heads or a divisor of H.
struct GatedLinearAttentionInputs {
  Tensor q, k, v;
  Tensor log_decay;  // [B, H, N] or, per feature, [B, H, N, F], contiguous
  Tensor beta;       // [B, H, N], contiguous; undefined without the delta rule
  double scale;
};
/// Writes out [B, H, N, Dv] and replaces `state` [B, H, F, Dv] (contiguous), that before the first
/// position, by that after the last. If `states` [B, H, chunks, F, Dv] is defined, it receives the
/// state before each chunk.
STRETTO_KERNEL(void gated_linear_attention(const GatedLinearAttentionInputs& in, const Tensor& out,
                                           const Tensor& state, const Tensor& states));

/// Gradients. Those that sum over the columns of v have P = gated_linear_parts() summands for each
/// of H heads, side by side.
struct GatedLinearAttentionGradients {
  Tensor q, k;             // [B, H P, N, F], rows contiguous
  Tensor v;                // [B, H, N, Dv], rows contiguous
  Tensor log_decay, beta;  // [B, H P, N] (and F), contiguous; beta undefined without the delta rule
  Tensor state;            // [B, H, F, Dv], contiguous: of the state after, becomes that before
};
/// Writes the gradients from that of out, `grad` [B, H, N, Dv], and forward's `states`.
STRETTO_KERNEL(void gated_linear_attention_backward(const GatedLinearAttentionInputs& in,
                                                    const Tensor& states, const Tensor& grad,
                                                    const GatedLinearAttentionGradients& to));

}  // namespace stretto::cuda
