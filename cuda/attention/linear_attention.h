// Linear attention on the device: forward, backward, and one token of generation.
#pragma once

#include "../runtime/kernel.h"

namespace stretto::cuda {

/// Whether the functions below take q [B, H, M, F], k and v [B, G, N, Dv]: f32 or bf16, rows of
/// whole pieces of 16 bytes, F and Dv up to 128, or F up to 256 and Dv up to 64, nothing empty.
STRETTO_KERNEL(bool serves_linear_attention(const Tensor& q, const Tensor& k, const Tensor& v));

struct LinearAttentionOperands {
  Tensor q, k, v;
  Tensor padding;  // u8 [B, N], or undefined
  Tensor before;   // [B, G, F, Dv + 1] f32, contiguous: sums over earlier keys, or undefined
  bool causal;
  double eps;
};
/// y [B, H, M, Dv] and totals [B, H, M] (f32, contiguous: the denominators) are written, and where
/// it is defined `after` [B, G, F, Dv + 1] (f32, contiguous), which is before with these keys.
/// y has contiguous rows, 16 bytes of which belong together wherever they lie.
STRETTO_KERNEL(void linear_attention(const LinearAttentionOperands& in, const Tensor& y,
                                     const Tensor& totals, const Tensor& after));

/// The gradients of q, k and v, whose rows lie as those of y, and, where it is defined, of before,
/// from grad, that of y, and grad_after, that of `after` or undefined.
struct LinearAttentionGradients {
  Tensor q, k, v, before;
};
STRETTO_KERNEL(void linear_attention_backward(const LinearAttentionOperands& in,
                                              const Tensor& totals, const Tensor& grad,
                                              const Tensor& grad_after,
                                              const LinearAttentionGradients& to));

/// One token, M = N = 1, any F and Dv up to 1024, f32 or bf16, rows contiguous: after = before + k
/// [v, 1]ᵀ, another tensor, and y.
STRETTO_KERNEL(void linear_attention_token(const LinearAttentionOperands& in, const Tensor& y,
                                           const Tensor& after));

}  // namespace stretto::cuda
