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

/// The sizes of operands x [positions, batch, dims] and results g [positions, batch, R].
struct SpeTileSizes {
  int64_t positions, batch, dims, realizations;
};

/// The operands x of one position, [batch, dims].
template <class T>
struct SpeOperandRows {
  const T* data;
  int64_t stride;  // of rows
};

/// The factors [dims] and rows [dims, R] of the gate; null without a gate.
template <class T>
struct SpeGateRows {
  const T *factors, *rows;
};

/// The size of a block of positions of a code of sinusoids. The positions are at offsets ±½, ±1½, …
/// from the middle of the block.
struct SpeWaves {
  static constexpr int64_t pairs = 16, block = 2 * pairs;
};

/// a = cos φ and b = sin φ at the positive offsets of a block, [pairs, K].
template <class T>
struct SpeAngles {
  const T *cosines, *sines;
  int64_t waves;  // K
};

/// The weights A of the cosines and B of the sines, [K, R].
template <class T>
struct SpeWeights {
  const T *of_cosines, *of_sines;
  int64_t realizations;  // R

  /// Returns the weights from row k and column r on.
  SpeWeights from(int64_t k, int64_t r) const {
    const int64_t at = k * realizations + r;
    return {of_cosines + at, of_sines + at, realizations};
  }
};

template <class T>
struct SpeKernels {
  /// y[b] [R] += Σ_c x[b, c] (a_c C_c[l, :] + gate[c, :]) for position l, or Σ_c x[b, c] C_c[l, :]
  /// without a gate, with the gate's factors a. If `overwrite`, y is written without being read.
  void (*apply)(SpeOperandRows<T> x, const T* const* codes, int64_t l, SpeGateRows<T> gate,
                const SpeTileSizes& sizes, T* const* y, bool overwrite);

  /// t[l, b, c] = Σ_r g[l, b, r] C_c[l, r].
  void (*products)(const T* g, const T* const* codes, const SpeTileSizes& sizes, T* t);

  /// to[c][l, r] += Σ_b x[l, b, c] g[l, b, r]; dimensions have stride `stride` in `to`.
  void (*weighted)(const T* x, const T* g, const SpeTileSizes& sizes, T* to, int64_t stride);

  /// Computes the codes C [block, R] of sinusoids, only for pairs first … end − 1 of positions:
  ///
  ///   C[+m] = E + O,  C[−m] = E − O,  E = Σ_k a_k A_k,  O = Σ_k b_k B_k
  void (*waves)(SpeAngles<T> angles, SpeWeights<T> weights, int64_t first, int64_t end, T* codes);

  /// dA = Σ_m cos dC, dB = Σ_m sin dC, VA = Σ_m m cos dC and VB = Σ_m m sin dC of a block dC
  /// [block, R] → sums [K, 4, R].
  void (*wave_sums)(SpeAngles<T> angles, const T* dc, int64_t realizations, T* sums);
};

template <class T>
const SpeKernels<T>& spe_avx512();
template <class T>
const SpeKernels<T>& spe_avx2();
template <class T>
const SpeKernels<T>& spe_neon();
template <class T>
const SpeKernels<T>& spe_portable();

/// Returns the kernels for the instruction set in use.
template <class T>
const SpeKernels<T>& spe_kernels();

}  // namespace stretto
