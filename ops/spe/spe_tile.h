// The implementation of ops/spe/spe_kernels.h for all instruction sets. A source file first
// includes the header with the vector type V of one instruction set (core/simd/), and then uses
// `SpeLoops<V, vectors>::kernels`.
//
// Reference: tests/reference/spe.cpp, encoded(), sine_code()
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "../../core/simd/vectors.h"
#include "spe_kernels.h"

namespace stretto {
namespace {

template <class V, int most_vectors>
struct SpeLoops {
  using T = typename V::Scalar;
  using X = typename V::Vector;
  static constexpr int w = V::width;

  // Loads a vector of w elements, or the last n < w elements of a row if not `full`.
  template <bool full>
  STRETTO_SIMD_INLINE X load(const T* p, int64_t n) {
    if constexpr (full) return V::load(p);
    T all[w] = {};
    for (int64_t i = 0; i < n; ++i) all[i] = p[i];
    return V::load(all);
  }
  template <bool full>
  STRETTO_SIMD_INLINE void store(T* p, X x, int64_t n) {
    if constexpr (full) return V::store(p, x);
    T all[w];
    V::store(all, x);
    for (int64_t i = 0; i < n; ++i) p[i] = all[i];
  }

  // to[i] = the sum of the elements of v[i], for 16 vectors.
  STRETTO_SIMD_INLINE void add_up(const X* v, T* to) {
    if constexpr (requires { V::add_up(v, to); }) {
      V::add_up(v, to);
    } else {
      for (int i = 0; i < 16; ++i) {
        T all[w];
        V::store(all, v[i]);
        for (int n = w / 2; n > 0; n /= 2)
          for (int j = 0; j < n; ++j) all[j] += all[j + n];
        to[i] = all[0];
      }
    }
  }

  // SpeKernels::apply for B rows of x and N vectors, or the last n < w elements, of R from r0 on.
  template <int B, int N, bool full>
  STRETTO_SIMD_INLINE void apply_tile(SpeOperandRows<T> x, const T* const* codes, int64_t l,
                                      SpeGateRows<T> gate, const SpeTileSizes& sizes, T* const* y,
                                      int64_t r0, bool overwrite) {
    const int64_t r = sizes.realizations, n = r - r0;
    X sum[B][N];
#pragma GCC unroll 4
    for (int b = 0; b < B; ++b)
#pragma GCC unroll 4
      for (int v = 0; v < N; ++v)
        sum[b][v] = overwrite ? V::set1(T(0)) : load<full>(y[b] + r0 + v * w, n - v * w);
    for (int64_t c = 0; c < sizes.dims; ++c) {
      X code[N];
#pragma GCC unroll 4
      for (int v = 0; v < N; ++v) {
        code[v] = load<full>(codes[c] + l * r + r0 + v * w, n - v * w);
        if (gate.rows)
          code[v] = V::fma(V::set1(gate.factors[c]), code[v],
                           load<full>(gate.rows + c * r + r0 + v * w, n - v * w));
      }
#pragma GCC unroll 4
      for (int b = 0; b < B; ++b) {
        const X factor = V::set1(x.data[b * x.stride + c]);
#pragma GCC unroll 4
        for (int v = 0; v < N; ++v) sum[b][v] = V::fma(factor, code[v], sum[b][v]);
      }
    }
#pragma GCC unroll 4
    for (int b = 0; b < B; ++b)
#pragma GCC unroll 4
      for (int v = 0; v < N; ++v) store<full>(y[b] + r0 + v * w, sum[b][v], n - v * w);
  }
  template <int B>
  STRETTO_SIMD_INLINE void apply_rows(SpeOperandRows<T> x, const T* const* codes, int64_t l,
                                      SpeGateRows<T> gate, const SpeTileSizes& sizes, T* const* y,
                                      bool overwrite) {
    const int64_t r = sizes.realizations;
    int64_t r0 = 0;
    for (; r0 + most_vectors * w <= r; r0 += most_vectors * w)
      apply_tile<B, most_vectors, true>(x, codes, l, gate, sizes, y, r0, overwrite);
    for (; r0 + w <= r; r0 += w) apply_tile<B, 1, true>(x, codes, l, gate, sizes, y, r0, overwrite);
    if (r0 < r) apply_tile<B, 1, false>(x, codes, l, gate, sizes, y, r0, overwrite);
  }
  STRETTO_SIMD_TARGET static void apply(SpeOperandRows<T> x, const T* const* codes, int64_t l,
                                        SpeGateRows<T> gate, const SpeTileSizes& sizes, T* const* y,
                                        bool overwrite) {
    int64_t b = 0;
    for (; b + 4 <= sizes.batch; b += 4, x.data += 4 * x.stride)
      apply_rows<4>(x, codes, l, gate, sizes, y + b, overwrite);
    for (; b < sizes.batch; ++b, x.data += x.stride)
      apply_rows<1>(x, codes, l, gate, sizes, y + b, overwrite);
  }

  template <int B, int C, bool full>
  STRETTO_SIMD_INLINE void add_products(const T* g, const T* const* codes, int64_t at, int64_t r,
                                        int64_t n, X* sum) {
    X y[B];
#pragma GCC unroll 4
    for (int b = 0; b < B; ++b) y[b] = load<full>(g + b * r, n);
#pragma GCC unroll 16
    for (int c = 0; c < C; ++c) {
      const X code = load<full>(codes[c] + at, n);
#pragma GCC unroll 4
      for (int b = 0; b < B; ++b) sum[b * C + c] = V::fma(y[b], code, sum[b * C + c]);
    }
  }

  // t[b, c] of position l for B rows and C dimensions, with B·C ≤ 16.
  template <int B, int C>
  STRETTO_SIMD_INLINE void products_tile(const T* g, const T* const* codes, int64_t l,
                                         const SpeTileSizes& sizes, T* t) {
    const int64_t r = sizes.realizations, at = l * r;
    X sum[16];
#pragma GCC unroll 16
    for (int i = 0; i < 16; ++i) sum[i] = V::set1(T(0));
    int64_t i = 0;
    for (; i + w <= r; i += w) add_products<B, C, true>(g + i, codes, at + i, r, w, sum);
    if (i < r) add_products<B, C, false>(g + i, codes, at + i, r, r - i, sum);
    T all[16];
    add_up(sum, all);
    for (int b = 0; b < B; ++b)
      for (int c = 0; c < C; ++c) t[b * sizes.dims + c] = all[b * C + c];
  }
  STRETTO_SIMD_TARGET static void products(const T* g, const T* const* codes,
                                           const SpeTileSizes& sizes, T* t) {
    const int64_t dims = sizes.dims, r = sizes.realizations;
    for (int64_t l = 0; l < sizes.positions; ++l) {
      int64_t b = 0;
      for (; b + 4 <= sizes.batch; b += 4, g += 4 * r, t += 4 * dims) {
        int64_t c = 0;
        for (; c + 4 <= dims; c += 4) products_tile<4, 4>(g, codes + c, l, sizes, t + c);
        for (; c < dims; ++c) products_tile<4, 1>(g, codes + c, l, sizes, t + c);
      }
      for (; b < sizes.batch; ++b, g += r, t += dims) {
        int64_t c = 0;
        for (; c + 16 <= dims; c += 16) products_tile<1, 16>(g, codes + c, l, sizes, t + c);
        for (; c + 4 <= dims; c += 4) products_tile<1, 4>(g, codes + c, l, sizes, t + c);
        for (; c < dims; ++c) products_tile<1, 1>(g, codes + c, l, sizes, t + c);
      }
    }
  }

  // SpeKernels::weighted for C dimensions of a position, and N vectors or the last n < w elements.
  template <int C, int N, bool full>
  STRETTO_SIMD_INLINE void weighted_tile(const T* x, const T* g, int64_t n,
                                         const SpeTileSizes& sizes, T* to, int64_t stride) {
    X sum[C][N];
#pragma GCC unroll 4
    for (int c = 0; c < C; ++c)
#pragma GCC unroll 4
      for (int v = 0; v < N; ++v) sum[c][v] = load<full>(to + c * stride + v * w, n - v * w);
    for (int64_t b = 0; b < sizes.batch; ++b) {
      X y[N];
#pragma GCC unroll 4
      for (int v = 0; v < N; ++v) y[v] = load<full>(g + b * sizes.realizations + v * w, n - v * w);
#pragma GCC unroll 4
      for (int c = 0; c < C; ++c) {
        const X factor = V::set1(x[b * sizes.dims + c]);
#pragma GCC unroll 4
        for (int v = 0; v < N; ++v) sum[c][v] = V::fma(factor, y[v], sum[c][v]);
      }
    }
#pragma GCC unroll 4
    for (int c = 0; c < C; ++c)
#pragma GCC unroll 4
      for (int v = 0; v < N; ++v) store<full>(to + c * stride + v * w, sum[c][v], n - v * w);
  }
  template <int C>
  STRETTO_SIMD_INLINE void weighted_dims(const T* x, const T* g, const SpeTileSizes& sizes, T* to,
                                         int64_t stride) {
    const int64_t r = sizes.realizations;
    int64_t i = 0;
    for (; i + most_vectors * w <= r; i += most_vectors * w)
      weighted_tile<C, most_vectors, true>(x, g + i, r - i, sizes, to + i, stride);
    for (; i + w <= r; i += w) weighted_tile<C, 1, true>(x, g + i, r - i, sizes, to + i, stride);
    if (i < r) weighted_tile<C, 1, false>(x, g + i, r - i, sizes, to + i, stride);
  }
  STRETTO_SIMD_TARGET static void weighted(const T* x, const T* g, const SpeTileSizes& sizes, T* to,
                                           int64_t stride) {
    const int64_t dims = sizes.dims, r = sizes.realizations;
    for (int64_t l = 0; l < sizes.positions;
         ++l, x += sizes.batch * dims, g += sizes.batch * r, to += r) {
      int64_t c = 0;
      for (; c + 4 <= dims; c += 4) weighted_dims<4>(x + c, g, sizes, to + c * stride, stride);
      for (; c < dims; ++c) weighted_dims<1>(x + c, g, sizes, to + c * stride, stride);
    }
  }

  // SpeKernels::waves for P pairs of positions, and N vectors or the last n < w elements.
  template <int P, int N, bool full>
  STRETTO_SIMD_INLINE void waves_tile(SpeAngles<T> angles, SpeWeights<T> weights, int64_t n,
                                      int64_t pair, T* codes) {
    const int64_t r = weights.realizations, waves = angles.waves;
    X even[P][N], odd[P][N];
#pragma GCC unroll 4
    for (int i = 0; i < P; ++i)
#pragma GCC unroll 4
      for (int v = 0; v < N; ++v) even[i][v] = odd[i][v] = V::set1(T(0));
    for (int64_t k = 0; k < waves; ++k) {
#pragma GCC unroll 4
      for (int v = 0; v < N; ++v) {
        const X left = load<full>(weights.of_cosines + k * r + v * w, n - v * w);
        const X right = load<full>(weights.of_sines + k * r + v * w, n - v * w);
#pragma GCC unroll 4
        for (int i = 0; i < P; ++i) {
          const int64_t at = (pair + i) * waves + k;
          even[i][v] = V::fma(V::set1(angles.cosines[at]), left, even[i][v]);
          odd[i][v] = V::fma(V::set1(angles.sines[at]), right, odd[i][v]);
        }
      }
    }
    T* const after = codes + (SpeWaves::pairs + pair) * r;
    T* const before = codes + (SpeWaves::pairs - 1 - pair) * r;
#pragma GCC unroll 4
    for (int i = 0; i < P; ++i)
#pragma GCC unroll 4
      for (int v = 0; v < N; ++v) {
        store<full>(after + i * r + v * w, even[i][v] + odd[i][v], n - v * w);
        store<full>(before - i * r + v * w, even[i][v] - odd[i][v], n - v * w);
      }
  }
  STRETTO_SIMD_TARGET static void waves(SpeAngles<T> angles, SpeWeights<T> weights, int64_t first,
                                        int64_t end, T* codes) {
    constexpr int64_t pairs = 4;
    const int64_t r = weights.realizations;
    for (int64_t pair = first / pairs * pairs; pair < end; pair += pairs) {
      int64_t i = 0;
      for (; i + 2 * w <= r; i += 2 * w)
        waves_tile<pairs, 2, true>(angles, weights.from(0, i), r - i, pair, codes + i);
      for (; i + w <= r; i += w)
        waves_tile<pairs, 1, true>(angles, weights.from(0, i), r - i, pair, codes + i);
      if (i < r) waves_tile<pairs, 1, false>(angles, weights.from(0, i), r - i, pair, codes + i);
    }
  }

  // SpeKernels::wave_sums for the K waves from k on, and a vector or the last n < w elements.
  template <int K, bool full>
  STRETTO_SIMD_INLINE void wave_sums_tile(SpeAngles<T> angles, int64_t k, const T* dc, int64_t r,
                                          int64_t n, T* sums) {
    X sum[K][4];
#pragma GCC unroll 5
    for (int j = 0; j < K; ++j)
#pragma GCC unroll 4
      for (int i = 0; i < 4; ++i) sum[j][i] = V::set1(T(0));
    for (int64_t i = 0; i < SpeWaves::pairs; ++i) {
      const X after = load<full>(dc + (SpeWaves::pairs + i) * r, n);
      const X before = load<full>(dc + (SpeWaves::pairs - 1 - i) * r, n);
      const X even = after + before, odd = after - before, m = V::set1(T(i) + T(0.5));
      const X even_m = even * m, odd_m = odd * m;
#pragma GCC unroll 5
      for (int j = 0; j < K; ++j) {
        const int64_t at = i * angles.waves + k + j;
        const X cosine = V::set1(angles.cosines[at]), sine = V::set1(angles.sines[at]);
        sum[j][0] = V::fma(cosine, even, sum[j][0]);
        sum[j][1] = V::fma(sine, odd, sum[j][1]);
        sum[j][2] = V::fma(cosine, odd_m, sum[j][2]);
        sum[j][3] = V::fma(sine, even_m, sum[j][3]);
      }
    }
#pragma GCC unroll 5
    for (int j = 0; j < K; ++j)
#pragma GCC unroll 4
      for (int i = 0; i < 4; ++i) store<full>(sums + ((k + j) * 4 + i) * r, sum[j][i], n);
  }
  template <bool full>
  STRETTO_SIMD_INLINE void wave_sums_at(SpeAngles<T> angles, const T* dc, int64_t r, int64_t n,
                                        T* sums) {
    int64_t k = 0;
    for (; k + 5 <= angles.waves; k += 5) wave_sums_tile<5, full>(angles, k, dc, r, n, sums);
    for (; k < angles.waves; ++k) wave_sums_tile<1, full>(angles, k, dc, r, n, sums);
  }
  STRETTO_SIMD_TARGET static void wave_sums(SpeAngles<T> angles, const T* dc, int64_t r, T* sums) {
    int64_t i = 0;
    for (; i + w <= r; i += w) wave_sums_at<true>(angles, dc + i, r, r - i, sums + i);
    if (i < r) wave_sums_at<false>(angles, dc + i, r, r - i, sums + i);
  }

  static constexpr SpeKernels<T> kernels{apply, products, weighted, waves, wave_sums};
};

}  // namespace
}  // namespace stretto
