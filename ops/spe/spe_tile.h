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

  template <int B, int N, bool full>
  STRETTO_SIMD_INLINE void apply_tile(const T* x, int64_t ldx, const T* const* codes, int64_t dims,
                                      int64_t at, const T* a, const T* gate, int64_t r, T* const* y,
                                      int64_t r0, bool overwrite) {
    const int64_t n = r - r0;
    X sum[B][N];
#pragma GCC unroll 4
    for (int b = 0; b < B; ++b)
#pragma GCC unroll 4
      for (int v = 0; v < N; ++v)
        sum[b][v] = overwrite ? V::set1(T(0)) : load<full>(y[b] + r0 + v * w, n - v * w);
    for (int64_t c = 0; c < dims; ++c) {
      X code[N];
#pragma GCC unroll 4
      for (int v = 0; v < N; ++v) {
        code[v] = load<full>(codes[c] + at + r0 + v * w, n - v * w);
        if (gate)
          code[v] =
              V::fma(V::set1(a[c]), code[v], load<full>(gate + c * r + r0 + v * w, n - v * w));
      }
#pragma GCC unroll 4
      for (int b = 0; b < B; ++b) {
        const X factor = V::set1(x[b * ldx + c]);
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
  STRETTO_SIMD_INLINE void apply_rows(const T* x, int64_t ldx, const T* const* codes, int64_t dims,
                                      int64_t at, const T* a, const T* gate, int64_t r, T* const* y,
                                      bool overwrite) {
    int64_t r0 = 0;
    for (; r0 + most_vectors * w <= r; r0 += most_vectors * w)
      apply_tile<B, most_vectors, true>(x, ldx, codes, dims, at, a, gate, r, y, r0, overwrite);
    for (; r0 + w <= r; r0 += w)
      apply_tile<B, 1, true>(x, ldx, codes, dims, at, a, gate, r, y, r0, overwrite);
    if (r0 < r) apply_tile<B, 1, false>(x, ldx, codes, dims, at, a, gate, r, y, r0, overwrite);
  }
  STRETTO_SIMD_TARGET static void apply(const T* x, int64_t ldx, int64_t batch,
                                        const T* const* codes, int64_t dims, int64_t l, const T* a,
                                        const T* gate, int64_t r, T* const* y, bool overwrite) {
    int64_t b = 0;
    for (; b + 4 <= batch; b += 4)
      apply_rows<4>(x + b * ldx, ldx, codes, dims, l * r, a, gate, r, y + b, overwrite);
    for (; b < batch; ++b)
      apply_rows<1>(x + b * ldx, ldx, codes, dims, l * r, a, gate, r, y + b, overwrite);
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

  // t[b, c] of B rows and C dimensions, with B·C ≤ 16.
  template <int B, int C>
  STRETTO_SIMD_INLINE void products_tile(const T* g, const T* const* codes, int64_t at,
                                         int64_t dims, int64_t r, T* t) {
    X sum[16];
#pragma GCC unroll 16
    for (int i = 0; i < 16; ++i) sum[i] = V::set1(T(0));
    int64_t i = 0;
    for (; i + w <= r; i += w) add_products<B, C, true>(g + i, codes, at + i, r, w, sum);
    if (i < r) add_products<B, C, false>(g + i, codes, at + i, r, r - i, sum);
    T all[16];
    add_up(sum, all);
    for (int b = 0; b < B; ++b)
      for (int c = 0; c < C; ++c) t[b * dims + c] = all[b * C + c];
  }
  STRETTO_SIMD_TARGET static void products(const T* g, const T* const* codes, int64_t rows,
                                           int64_t batch, int64_t dims, int64_t r, T* t) {
    for (int64_t l = 0; l < rows; ++l) {
      int64_t b = 0;
      for (; b + 4 <= batch; b += 4, g += 4 * r, t += 4 * dims) {
        int64_t c = 0;
        for (; c + 4 <= dims; c += 4) products_tile<4, 4>(g, codes + c, l * r, dims, r, t + c);
        for (; c < dims; ++c) products_tile<4, 1>(g, codes + c, l * r, dims, r, t + c);
      }
      for (; b < batch; ++b, g += r, t += dims) {
        int64_t c = 0;
        for (; c + 16 <= dims; c += 16) products_tile<1, 16>(g, codes + c, l * r, dims, r, t + c);
        for (; c + 4 <= dims; c += 4) products_tile<1, 4>(g, codes + c, l * r, dims, r, t + c);
        for (; c < dims; ++c) products_tile<1, 1>(g, codes + c, l * r, dims, r, t + c);
      }
    }
  }

  template <int C, int N, bool full>
  STRETTO_SIMD_INLINE void weighted_tile(const T* x, const T* g, int64_t batch, int64_t dims,
                                         int64_t r, int64_t n, int64_t stride, bool overwrite,
                                         T* to) {
    X sum[C][N];
#pragma GCC unroll 4
    for (int c = 0; c < C; ++c)
#pragma GCC unroll 4
      for (int v = 0; v < N; ++v)
        sum[c][v] = overwrite ? V::set1(T(0)) : load<full>(to + c * stride + v * w, n - v * w);
    for (int64_t b = 0; b < batch; ++b) {
      X y[N];
#pragma GCC unroll 4
      for (int v = 0; v < N; ++v) y[v] = load<full>(g + b * r + v * w, n - v * w);
#pragma GCC unroll 4
      for (int c = 0; c < C; ++c) {
        const X factor = V::set1(x[b * dims + c]);
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
  STRETTO_SIMD_INLINE void weighted_dims(const T* x, const T* g, int64_t batch, int64_t dims,
                                         int64_t r, int64_t stride, bool overwrite, T* to) {
    int64_t i = 0;
    for (; i + most_vectors * w <= r; i += most_vectors * w)
      weighted_tile<C, most_vectors, true>(x, g + i, batch, dims, r, r - i, stride, overwrite,
                                           to + i);
    for (; i + w <= r; i += w)
      weighted_tile<C, 1, true>(x, g + i, batch, dims, r, r - i, stride, overwrite, to + i);
    if (i < r)
      weighted_tile<C, 1, false>(x, g + i, batch, dims, r, r - i, stride, overwrite, to + i);
  }
  STRETTO_SIMD_TARGET static void weighted(const T* x, const T* g, int64_t rows, int64_t batch,
                                           int64_t dims, int64_t r, int64_t stride, bool overwrite,
                                           T* to) {
    for (int64_t l = 0; l < rows; ++l, x += batch * dims, g += batch * r, to += r) {
      int64_t c = 0;
      for (; c + 4 <= dims; c += 4)
        weighted_dims<4>(x + c, g, batch, dims, r, stride, overwrite, to + c * stride);
      for (; c < dims; ++c)
        weighted_dims<1>(x + c, g, batch, dims, r, stride, overwrite, to + c * stride);
    }
  }

  template <int P, int N, bool full>
  STRETTO_SIMD_INLINE void waves_tile(const T* cosines, const T* sines, int64_t k, const T* a,
                                      const T* b, int64_t r, int64_t n, int64_t pair, T* codes) {
    X even[P][N], odd[P][N];
#pragma GCC unroll 4
    for (int i = 0; i < P; ++i)
#pragma GCC unroll 4
      for (int v = 0; v < N; ++v) even[i][v] = odd[i][v] = V::set1(T(0));
    for (int64_t j = 0; j < k; ++j) {
#pragma GCC unroll 4
      for (int v = 0; v < N; ++v) {
        const X left = load<full>(a + j * r + v * w, n - v * w);
        const X right = load<full>(b + j * r + v * w, n - v * w);
#pragma GCC unroll 4
        for (int i = 0; i < P; ++i) {
          even[i][v] = V::fma(V::set1(cosines[(pair + i) * k + j]), left, even[i][v]);
          odd[i][v] = V::fma(V::set1(sines[(pair + i) * k + j]), right, odd[i][v]);
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
  STRETTO_SIMD_TARGET static void waves(const T* cosines, const T* sines, int64_t k, const T* a,
                                        const T* b, int64_t r, int64_t first, int64_t end,
                                        T* codes) {
    constexpr int64_t at_once = 4;
    for (int64_t pair = first / at_once * at_once; pair < end; pair += at_once) {
      int64_t i = 0;
      for (; i + 2 * w <= r; i += 2 * w)
        waves_tile<at_once, 2, true>(cosines, sines, k, a + i, b + i, r, r - i, pair, codes + i);
      for (; i + w <= r; i += w)
        waves_tile<at_once, 1, true>(cosines, sines, k, a + i, b + i, r, r - i, pair, codes + i);
      if (i < r)
        waves_tile<at_once, 1, false>(cosines, sines, k, a + i, b + i, r, r - i, pair, codes + i);
    }
  }

  template <int K, bool full>
  STRETTO_SIMD_INLINE void wave_sums_tile(const T* cosines, const T* sines, int64_t k, const T* dc,
                                          int64_t r, int64_t n, T* sums) {
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
        const X cosine = V::set1(cosines[i * k + j]), sine = V::set1(sines[i * k + j]);
        sum[j][0] = V::fma(cosine, even, sum[j][0]);
        sum[j][1] = V::fma(sine, odd, sum[j][1]);
        sum[j][2] = V::fma(cosine, odd_m, sum[j][2]);
        sum[j][3] = V::fma(sine, even_m, sum[j][3]);
      }
    }
#pragma GCC unroll 5
    for (int j = 0; j < K; ++j)
#pragma GCC unroll 4
      for (int i = 0; i < 4; ++i) store<full>(sums + (j * 4 + i) * r, sum[j][i], n);
  }
  template <bool full>
  STRETTO_SIMD_INLINE void wave_sums_at(const T* cosines, const T* sines, int64_t k, const T* dc,
                                        int64_t r, int64_t n, T* sums) {
    int64_t j = 0;
    for (; j + 5 <= k; j += 5)
      wave_sums_tile<5, full>(cosines + j, sines + j, k, dc, r, n, sums + j * 4 * r);
    for (; j < k; ++j)
      wave_sums_tile<1, full>(cosines + j, sines + j, k, dc, r, n, sums + j * 4 * r);
  }
  STRETTO_SIMD_TARGET static void wave_sums(const T* cosines, const T* sines, int64_t k,
                                            const T* dc, int64_t r, T* sums) {
    int64_t i = 0;
    for (; i + w <= r; i += w) wave_sums_at<true>(cosines, sines, k, dc + i, r, r - i, sums + i);
    if (i < r) wave_sums_at<false>(cosines, sines, k, dc + i, r, r - i, sums + i);
  }

  static constexpr SpeKernels<T> kernels{apply, products, weighted, waves, wave_sums};
};

}  // namespace
}  // namespace stretto
