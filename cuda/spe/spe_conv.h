// convSPE on chip, for ops/spe/spe_conv.cpp: noise that is drawn, filtered and used in registers
// and shared memory.
#pragma once

#include "../../core/random.h"
#include "../runtime/kernel.h"

namespace stretto::cuda {

/// A code of filtered noise for both sides: at the position of row i, column j of a plane, whose
/// number is i·columns + j,
///
///   C[h, d, (i, j), r] = Σ_(p1, p2) w[h, d, p1, p2] z[h, d, i + P1 − 1 − p1, j + P2 − 1 − p2, r]
///
/// z[h, d, i, j, r] is normal draw (h·D + d)·apart + i·pitch + j·R + r of the key. Rows e join it
/// at every position; undefined without. All contiguous f32.
struct NoiseCode {
  RandomKey key;
  int64_t apart, pitch, columns, realizations;
  Tensor w[2];  // of queries and of keys [H, D, P1, P2]
  Tensor e;     // [H, D, R]
};

/// One side: x [B, H, n, D] at positions from `at` on and y [B, H, n, R], or its gradient; both f32
/// or bf16, rows contiguous, of any other strides. Nothing is done where y is undefined.
struct NoiseSide {
  Tensor x;
  int64_t at;
  Tensor y;
};

/// Whether there are kernels for filters of so many rows and taps.
STRETTO_KERNEL(bool makes_noise_codes(int64_t rows, int64_t taps));

/// y = Σ_d x[.., d] (C + e)[h, d, p, :].
STRETTO_KERNEL(void apply_noise_code(const NoiseCode& code, const NoiseSide (&sides)[2]));
/// The gradients dx of x, from dy; where they are defined.
STRETTO_KERNEL(void noise_code_dx(const NoiseCode& code, const NoiseSide (&sides)[2],
                                  const Tensor (&dx)[2]));

/// What the code's gradients are made of, with dC = Σ_b x dy: dw[side] = Σ_(p, r) dC z, [2, H, D,
/// P1, P2], and the sums of dC over both sides' positions, [H, D, R]; f32.
struct NoiseSums {
  Tensor w, e;
};
STRETTO_KERNEL(NoiseSums noise_code_sums(const NoiseCode& code, const NoiseSide (&sides)[2]));

}  // namespace stretto::cuda
