// sineSPE on chip, for ops/spe/spe_sine.cpp: codes are computed in tiles that stay in registers.
#pragma once

#include "../runtime/kernel.h"

namespace stretto::cuda {

/// A code of sinusoids for queries or keys: C[h, d, p, :] = Σ_k cos(2πf p) w[2k] + sin(2πf p) w[2k
/// + 1]. Rows e, if defined, are added at every position. All contiguous f32.
struct SineCode {
  Tensor f;  // [H, D, K]
  Tensor w;  // [H, D, 2K, R]
  Tensor e;  // [H, D, R]
};

/// True if the kernels support this many dimensions and sinusoids.
STRETTO_KERNEL(bool makes_sine_codes(int64_t d, int64_t sines));

/// y [B, H, n, R] = Σ_d x[.., d] (C + e)[h, d, p, :] for x [B, H, n, D] at positions p from `at`
/// on; both f32 or bf16, with contiguous rows and otherwise any strides.
STRETTO_KERNEL(void apply_sine_code(const SineCode& code, const Tensor& x, int64_t at,
                                    const Tensor& y));
/// dx, from g = dy.
STRETTO_KERNEL(void sine_code_dx(const SineCode& code, const Tensor& g, int64_t at,
                                 const Tensor& dx));
/// Sums for the code's gradients, from x and g: [H, D, 4K + 1, R] in f32. For each k the sums over
/// batch and positions p of cos dC, sin dC, p cos dC and p sin dC; the last is the sum of dC.
STRETTO_KERNEL(Tensor sine_code_sums(const SineCode& code, const Tensor& x, const Tensor& g,
                                     int64_t at));

}  // namespace stretto::cuda
