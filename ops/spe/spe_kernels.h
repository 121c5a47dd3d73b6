// The inner loops of fused stochastic positional encoding, instantiated for each instruction set
// (ops/spe/spe_avx512.cpp, spe_avx2.cpp, spe_portable.cpp) from the template in ops/spe/spe_tile.h.
// Internal to ops/.
//
// A tile of a code is codes[c][l·R + r], for some dimensions c, positions l and realizations r.
// Each element is a sum in an order that depends only on the sizes D, R and K, with fused
// multiply-adds if the processor has them.
//
// Reference: tests/reference/spe.cpp, encoded(), sine_code()
#pragma once

#include <cstdint>

namespace stretto {

/// The sizes of a block of positions of a code of sinusoids. The positions are at offsets ±½, ±1½,
/// … from the middle of the block. With a = cos φ and b = sin φ at the positive offsets,
/// [pairs, K], and weights A and B, [K, R], the code is
///
///   C[+m] = E + O,  C[−m] = E − O,  E = Σ_k a_k A_k,  O = Σ_k b_k B_k
struct SpeWaves {
  static constexpr int64_t pairs = 16, block = 2 * pairs;
};

template <class T>
struct SpeKernels {
  /// y[b] [R] += Σ_c x[b, c] (a_c C_c[l, :] + gate[c, :]) for row l, or Σ_c x[b, c] C_c[l, :] if
  /// gate is null. Rows of x have stride `ldx`. If `overwrite`, y is written without being read.
  void (*apply)(const T* x, int64_t ldx, int64_t batch, const T* const* codes, int64_t dims,
                int64_t l, const T* a, const T* gate, int64_t r, T* const* y, bool overwrite);

  /// t[l, b, c] = Σ_r g[l, b, r] C_c[l, r].
  void (*products)(const T* g, const T* const* codes, int64_t rows, int64_t batch, int64_t dims,
                   int64_t r, T* t);

  /// to[c][l, r] += Σ_b x[l, b, c] g[l, b, r]; dimensions have stride `stride` in `to`. If
  /// `overwrite`, `to` is written without being read.
  void (*weighted)(const T* x, const T* g, int64_t rows, int64_t batch, int64_t dims, int64_t r,
                   int64_t stride, bool overwrite, T* to);

  /// Computes codes [block, R] of sinusoids, only for pairs first … end − 1 of positions.
  void (*waves)(const T* cosines, const T* sines, int64_t k, const T* a, const T* b, int64_t r,
                int64_t first, int64_t end, T* codes);

  /// dA = Σ_m cos dC, dB = Σ_m sin dC, VA = Σ_m m cos dC and VB = Σ_m m sin dC of a block dC
  /// [block, R] → sums [K, 4, R].
  void (*wave_sums)(const T* cosines, const T* sines, int64_t k, const T* dc, int64_t r, T* sums);
};

template <class T>
const SpeKernels<T>& spe_avx512();
template <class T>
const SpeKernels<T>& spe_avx2();
template <class T>
const SpeKernels<T>& spe_portable();

/// Returns the kernels for the instruction set in use.
template <class T>
const SpeKernels<T>& spe_kernels();

}  // namespace stretto
