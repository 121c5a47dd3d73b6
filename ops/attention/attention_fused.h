// The fused form of attention. Internal to ops/.
//
// Reference: tests/reference/attention.cpp, attention()
#pragma once

#include "ops/attention/attention_terms.h"

namespace stretto {

/// Whether the fused form computes in this dtype as it is: bf16 where there are products of bf16
/// (core/gemm/gemm.h).
bool fused_attention_takes(DType type);

/// Arguments are checked and options completed by attention(). On the CPU.
Tensor fused_attention(const Tensor& q, const Tensor& k, const Tensor& v,
                       const AttentionOptions& options);

}  // namespace stretto
