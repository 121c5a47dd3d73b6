// convSPE on chip, for ops/spe/spe_conv.cpp: noise is generated, filtered and used in
// registers and shared memory.
#pragma once

#include "../../core/random.h"
#include "../runtime/kernel.h"

namespace stretto::cuda {

/// A code of filtered noise for both sides, queries and keys. The position in row i and column j of
/// a plane is i·columns + j; there
///
///   C[h, d, (i, j), r] = Σ_(p1, p2) w[h, d, p1, p2] z[h, d, i + P1 − 1 − p1, j + P2 − 1 − p2, r]
///
/// z[h, d, i, j, r] is normal random number (h·D + d)·apart + i·pitch + j·R + r of the key. Rows e,
/// if defined, are added at every position. All contiguous f32.
struct NoiseCode {
  RandomKey key;
  int64_t apart, pitch, columns, realizations;
  Tensor w[2];  // of queries and of keys [H, D, P1, P2]
  Tensor e;     // [H, D, R]
};

/// One side: x [B, H, n, D] at positions from `at` on and y [B, H, n, R], or its gradient; both f32
/// or bf16, with contiguous rows and otherwise any strides. A side with undefined y is skipped.
struct NoiseSide {
  Tensor x;
  int64_t at;
  Tensor y;
};

/// True if the kernels support filters of this many rows and taps.
STRETTO_KERNEL(bool makes_noise_codes(int64_t rows, int64_t taps));

/// y = Σ_d x[.., d] (C + e)[h, d, p, :].
STRETTO_KERNEL(void apply_noise_code(const NoiseCode& code, const NoiseSide (&sides)[2]));
/// The gradients dx of x, from dy, for the sides whose dx is defined.
STRETTO_KERNEL(void noise_code_dx(const NoiseCode& code, const NoiseSide (&sides)[2],
                                  const Tensor (&dx)[2]));

/// Sums for the code's gradients, with dC = Σ_b x dy: w[side] = Σ_(p, r) dC z, [2, H, D, P1, P2],
/// and e, the sums of dC over both sides' positions, [H, D, R]; f32.
struct NoiseSums {
  Tensor w, e;
};
STRETTO_KERNEL(NoiseSums noise_code_sums(const NoiseCode& code, const NoiseSide (&sides)[2]));

}  // namespace stretto::cuda
