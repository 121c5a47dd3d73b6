// Linear layers on the device: a product and its epilogue, in one launch.
#pragma once

#include "runtime/kernel.h"

namespace stretto::cuda {

/// x · weightᵀ + bias, rounded once. All contiguous, of one dtype, f32 or bf16: x [N, in], weight
/// [out, in], bias [out]; N, in and out ≥ 1. With `before` (contiguous [N, out], out a multiple of
/// 8, cuBLASLt's rule) the result is gelu_tanh(x · weightᵀ + bias), and `before` receives the
/// argument of gelu_tanh.
STRETTO_KERNEL(Tensor linear(const Tensor& x, const Tensor& weight, const Tensor& bias,
                             const Tensor& before));
/// True if cuBLASLt supports linear() with `before` for N rows of `in` features, and
/// gelu_gradient() of a layer with `out` outputs on top of it, with sufficient precision for the
/// dtype. Never for f32: cuBLASLt's gelu_tanh′ then has an error of 1e-5 of its value (measured on
/// an H200, CUDA 13.0).
STRETTO_KERNEL(bool serves_gelu(int64_t n, int64_t in, int64_t hidden, int64_t out, DType dtype,
                                int device));
/// Backward through the layer on top and gelu_tanh: (g · weight) ∘ gelu_tanh′(before) for g
/// [N, out], weight [out, hidden] and `before` [N, hidden]. Its sum over the rows is
/// written to `bias` [hidden].
STRETTO_KERNEL(Tensor gelu_gradient(const Tensor& g, const Tensor& weight, const Tensor& before,
                                    const Tensor& bias));
/// gᵀ · x [out, in], the gradient of a layer's weight, for g [N, out] and x [N, in]. The sum of the
/// rows of g, the gradient of its bias, is written to `bias` [out].
STRETTO_KERNEL(Tensor weight_gradient(const Tensor& g, const Tensor& x, const Tensor& bias));
/// True if cuBLASLt supports weight_gradient() for these sizes. bf16 only: the precision of its
/// sums of f32 is not documented.
STRETTO_KERNEL(bool serves_weight_gradient(int64_t n, int64_t in, int64_t out, DType dtype,
                                           int device));

}  // namespace stretto::cuda
