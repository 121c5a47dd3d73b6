// Linear attention on the device: forward, backward, and one token of generation.
#pragma once

#include "../runtime/kernel.h"

namespace stretto::cuda {

/// True if the functions below support q [B, H, M, F], k [B, G, N, F] and v [B, G, N, Dv]:
/// f32 or bf16, rows in multiples of 16 bytes, F and Dv up to 128, or F up to 256 and Dv up
/// to 64, no empty tensor.
STRETTO_KERNEL(bool serves_linear_attention(const Tensor& q, const Tensor& k, const Tensor& v));

struct LinearAttentionOperands {
  Tensor q, k, v;
  Tensor padding;  // u8 [B, N], or undefined
  Tensor before;   // [B, G, F, Dv + 1] f32, contiguous: sums over earlier keys, or undefined
  bool causal;
  double eps;
};
/// Writes y [B, H, M, Dv], totals [B, H, M] (the denominators, f32, contiguous) and, if it is
/// defined, `after` [B, G, F, Dv + 1] (f32, contiguous): `before` plus the sums over these keys. y
/// has contiguous rows, which begin at multiples of 16 bytes.
STRETTO_KERNEL(void linear_attention(const LinearAttentionOperands& in, const Tensor& y,
                                     const Tensor& totals, const Tensor& after));

/// Writes the gradients of q, k and v, whose rows are laid out like y's, and, if it is defined, of
/// `before`, from y's gradient `grad` and the gradient of `after` (or undefined), grad_after.
struct LinearAttentionGradients {
  Tensor q, k, v, before;
};
STRETTO_KERNEL(void linear_attention_backward(const LinearAttentionOperands& in,
                                              const Tensor& totals, const Tensor& grad,
                                              const Tensor& grad_after,
                                              const LinearAttentionGradients& to));

/// One token, M = N = 1, any F, Dv up to 1024, f32 or bf16, contiguous rows: writes y and after =
/// before + k [v, 1]ᵀ, which is another tensor than `before`.
STRETTO_KERNEL(void linear_attention_token(const LinearAttentionOperands& in, const Tensor& y,
                                           const Tensor& after));

}  // namespace stretto::cuda
