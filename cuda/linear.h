// Linear layers on the device: a product and what follows it, in one launch.
#pragma once

#include "runtime/kernel.h"

namespace stretto::cuda {

/// f32 or bf16, contiguous, all of one dtype: x [N, in], weight [out, in], bias [out], N, in and
/// out ≥ 1. With `before`, contiguous [N, out] where out is a multiple of 8 (cuBLASLt's rule): the
/// result is gelu_tanh(x · weightᵀ + bias), and `before` gets the argument of gelu_tanh; without,
/// x · weightᵀ + bias, as one rounding.
STRETTO_KERNEL(Tensor linear(const Tensor& x, const Tensor& weight, const Tensor& bias,
                             const Tensor& before));
/// Whether cuBLASLt has linear with `before`, of N rows of `in` numbers, and the gelu_gradient of a
/// layer above it with `out`, precise enough for the dtype: never for f32, as its gelu_tanh′ is off
/// by 1e-5 of its value there (measured on an H200, CUDA 13.0).
STRETTO_KERNEL(bool serves_gelu(int64_t n, int64_t in, int64_t hidden, int64_t out, DType dtype,
                                int device));
/// Back through gelu_tanh and the layer above it: (g · weight) ∘ gelu_tanh′(before), where g is
/// [N, out], weight [out, hidden] and `before` [N, hidden]; its sum over the rows goes to `bias`
/// [hidden].
STRETTO_KERNEL(Tensor gelu_gradient(const Tensor& g, const Tensor& weight, const Tensor& before,
                                    const Tensor& bias));

}  // namespace stretto::cuda
