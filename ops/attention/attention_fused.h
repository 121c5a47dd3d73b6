// The fused form of attention. Internal to ops/.
//
// Reference: tests/reference/attention.cpp, attention()
#pragma once

#include "attention_terms.h"

namespace stretto {

/// Whether the fused form computes in this dtype as it is: bf16 where there are products of bf16
/// (core/gemm/gemm.h).
bool fused_attention_takes(DType type);

/// Arguments are checked and options completed by attention(). On the CPU.
Tensor fused_attention(const Tensor& q, const Tensor& k, const Tensor& v,
                       const AttentionOptions& options);

/// The same, and log Σ_j e^score(i, j) of each query [B, H, M], in f64 for f64, else f32, −∞ where
/// it sees no key: what parts of the keys need to be put together. Both have gradients, once.
Tensors fused_attention_and_sums(const Tensor& q, const Tensor& k, const Tensor& v,
                                 const AttentionOptions& options);

}  // namespace stretto
