// The body of core/gemm/kernels.h, once for all instruction sets: a file defines
// STRETTO_GEMM_TARGET (the target attribute, without which the compiler may not use the
// instructions; no file is compiled for a processor as a whole, so that no inline function of the
// standard library is) and a vector type V with its operations, and takes
// `Tiles<V, rows, vectors>::kernels`.
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>

#include "core/gemm/kernels.h"

#ifndef STRETTO_GEMM_TARGET
#define STRETTO_GEMM_TARGET
#endif
#define STRETTO_GEMM_INLINE STRETTO_GEMM_TARGET __attribute__((always_inline)) static inline

namespace stretto::kernels {
namespace {

// rows[i][j] becomes rows[j][i]: each round interleaves the first half of the rows with the second.
template <class V, int... j>
STRETTO_GEMM_INLINE void interleave(const typename V::Vector* from, typename V::Vector* to,
                                    std::integer_sequence<int, j...>) {
  constexpr int w = V::width;
#pragma GCC unroll 8
  for (int i = 0; i < w / 2; ++i) {
    to[2 * i] = __builtin_shufflevector(from[i], from[i + w / 2], (j / 2 + j % 2 * w)...);
    to[2 * i + 1] =
        __builtin_shufflevector(from[i], from[i + w / 2], (w / 2 + j / 2 + j % 2 * w)...);
  }
}
template <class V>
STRETTO_GEMM_INLINE void transpose(typename V::Vector* rows) {
  typename V::Vector other[V::width];
  int rounds = 0;
#pragma GCC unroll 4
  for (int w = V::width; w > 1; w /= 2, ++rounds)
    interleave<V>(rounds % 2 ? other : rows, rounds % 2 ? rows : other,
                  std::make_integer_sequence<int, V::width>());
  if (rounds % 2)
#pragma GCC unroll 16
    for (int i = 0; i < V::width; ++i) rows[i] = other[i];
}

template <class V, int tile_rows, int vectors>
struct Tiles {
  using T = typename V::Scalar;
  using Vector = typename V::Vector;
  static constexpr int w = V::width, columns = w * vectors;

  // n columns of `count` terms that are neighbours in memory, to vectors of columns.
  STRETTO_GEMM_INLINE void load_turned(const T* b, int64_t ld, int64_t n, int64_t count,
                                       Vector* rows) {
    if (count == w && n == w) {
#pragma GCC unroll 16
      for (int i = 0; i < w; ++i) rows[i] = V::load(b + i * ld);
    } else {
      for (int i = 0; i < w; ++i) rows[i] = i < n ? V::load(b + i * ld, count) : V::set1(T(0));
    }
    transpose<V>(rows);
  }

  STRETTO_GEMM_TARGET static void pack_b(const T* b, int64_t ld, bool transposed, int64_t k,
                                         int64_t n, T* panel) {
    if (!transposed && n == columns) {
      for (int64_t p = 0; p < k; ++p, b += ld, panel += columns)
#pragma GCC unroll 4
        for (int v = 0; v < vectors; ++v) V::store(panel + v * w, V::load(b + v * w));
      return;
    }
    if (!transposed) {
      for (int64_t p = 0; p < k; ++p, b += ld, panel += columns)
        for (int v = 0; v < vectors; ++v) V::store(panel + v * w, V::load(b + v * w, n - v * w));
      return;
    }
    for (int v = 0; v < vectors; ++v, b += w * ld, panel += w) {
      const int64_t here = std::clamp<int64_t>(n - v * w, 0, w);
      for (int64_t p = 0; p < k; p += w) {
        Vector rows[w];
        const int64_t count = std::min<int64_t>(w, k - p);
        load_turned(b + p, ld, here, count, rows);
        for (int64_t i = 0; i < count; ++i) V::store(panel + (p + i) * columns, rows[i]);
      }
    }
  }

  STRETTO_GEMM_TARGET static void pack_a(const T* a, int64_t ld, int64_t m, int64_t k, int64_t step,
                                         T* panels) {
    constexpr int64_t chunk = 32;  // of k, whose cache lines two panels may share
    for (int64_t p = 0; p < k; p += chunk)
      for (int64_t i = 0; i < m; i += step) {
        const int64_t rows = std::min(step, m - i);
        const T* from = a + p * ld + i;
        T* to = panels + i / step * k * tile_rows + p * tile_rows;
        for (int64_t q = p; q < std::min(k, p + chunk); ++q, from += ld, to += tile_rows)
#pragma GCC unroll 4
          for (int r = 0; r < tile_rows; r += w)
            V::store(to + r, V::load(from + r, rows - r), tile_rows - r);
      }
  }

  // One tile of R rows.
  template <int R, bool by_columns>
  STRETTO_GEMM_TARGET static void tile(int64_t k, const T* a, int64_t stride, const T* b,
                                       int64_t ldb, T alpha, T beta, T* c, int64_t ldc, int64_t n) {
#pragma GCC unroll 1
    for (int i = 0; i < R; ++i)
      for (int v = 0; v < vectors; ++v) __builtin_prefetch(c + i * ldc + v * w, 1);
    Vector sum[R][vectors];
#pragma GCC unroll 16
    for (int i = 0; i < R; ++i)
#pragma GCC unroll 4
      for (int v = 0; v < vectors; ++v) sum[i][v] = V::set1(T(0));
    constexpr int pointers = by_columns ? 1 : (R + 2) / 3;  // three rows to each, by addressing
    const T* row[pointers];
    for (int i = 0; i < pointers; ++i) row[i] = a + 3 * i * stride;
    for (int64_t p = 0; p < k; ++p, b += ldb) {
      Vector y[vectors];
#pragma GCC unroll 4
      for (int v = 0; v < vectors; ++v) __builtin_prefetch(b + 16 * ldb + v * w);
#pragma GCC unroll 4
      for (int v = 0; v < vectors; ++v) y[v] = V::load(b + v * w);
#pragma GCC unroll 16
      for (int i = 0; i < R; ++i) {
        const Vector x = V::set1(by_columns ? row[0][i] : row[i / 3][i % 3 * stride]);
#pragma GCC unroll 4
        for (int v = 0; v < vectors; ++v) sum[i][v] = V::fma(x, y[v], sum[i][v]);
      }
#pragma GCC unroll 8
      for (int i = 0; i < pointers; ++i) row[i] += by_columns ? stride : 1;
    }
#pragma GCC unroll 16
    for (int i = 0; i < R; ++i, c += ldc) finish(sum[i], alpha, beta, c, n);
  }

  // A row of C from its sums.
  STRETTO_GEMM_INLINE void finish(const Vector* sum, T alpha, T beta, T* c, int64_t n) {
    const Vector scale = V::set1(alpha), keep = V::set1(beta);
#pragma GCC unroll 4
    for (int v = 0; v < vectors; ++v) {
      const Vector y = scale * sum[v];
      const int64_t here = n - v * w;
      if (here >= w)
        V::store(c + v * w, beta == T(0) ? y : V::fma(keep, V::load(c + v * w), y));
      else if (here > 0)
        V::store(c + v * w, beta == T(0) ? y : V::fma(keep, V::load(c + v * w, here), y), here);
    }
  }

  template <int R>
  STRETTO_GEMM_TARGET static void few_of(int64_t k, const T* a, int64_t stride, const T* b,
                                         int64_t ldb, T alpha, T beta, T* c, int64_t ldc,
                                         int64_t n) {
    Vector sum[R][vectors];
#pragma GCC unroll 4
    for (int i = 0; i < R; ++i)
#pragma GCC unroll 4
      for (int v = 0; v < vectors; ++v) sum[i][v] = V::set1(T(0));
    for (int64_t p = 0; p < k; p += w) {
      const int64_t count = std::min<int64_t>(w, k - p);
#pragma GCC unroll 4
      for (int v = 0; v < vectors; ++v) {
        Vector y[w];
        load_turned(b + v * w * ldb + p, ldb, std::clamp<int64_t>(n - v * w, 0, w), count, y);
        if (count == w) {
#pragma GCC unroll 16
          for (int q = 0; q < w; ++q)
#pragma GCC unroll 4
            for (int i = 0; i < R; ++i)
              sum[i][v] = V::fma(V::set1(a[i * stride + p + q]), y[q], sum[i][v]);
        } else {
          for (int q = 0; q < count; ++q)
#pragma GCC unroll 4
            for (int i = 0; i < R; ++i)
              sum[i][v] = V::fma(V::set1(a[i * stride + p + q]), y[q], sum[i][v]);
        }
      }
    }
#pragma GCC unroll 4
    for (int i = 0; i < R; ++i) finish(sum[i], alpha, beta, c + i * ldc, n);
  }

  static void few(int64_t m, int64_t n, int64_t k, const T* a, int64_t row_stride, const T* b,
                  int64_t ldb, T alpha, T beta, T* c, int64_t ldc) {
    constexpr decltype(&few_of<1>) all[few_rows] = {few_of<1>, few_of<2>, few_of<3>, few_of<4>};
    all[m - 1](k, a, row_stride, b, ldb, alpha, beta, c, ldc, n);
  }

  using Tile = void (*)(int64_t, const T*, int64_t, const T*, int64_t, T, T, T*, int64_t, int64_t);
  template <bool by_columns, int... R>
  static Tile choose(int64_t rows, std::integer_sequence<int, R...>) {
    static constexpr Tile all[] = {tile<R + 1, by_columns>...};
    return all[rows - 1];
  }

  static void panel(int64_t m, int64_t n, int64_t k, const T* a, int64_t row_stride,
                    bool by_columns, int64_t step, int64_t tile_stride, const T* b, int64_t ldb,
                    T alpha, T beta, T* c, int64_t ldc) {
    constexpr auto heights = std::make_integer_sequence<int, tile_rows>();
    for (int64_t i = 0; i < m; i += step, a += tile_stride) {
      const int64_t rows = std::min(step, m - i);
      const Tile run = by_columns ? choose<true>(rows, heights) : choose<false>(rows, heights);
      run(k, a, row_stride, b, ldb, alpha, beta, c + i * ldc, ldc, n);
    }
  }

  static constexpr Gemm<T> kernels{tile_rows, columns, pack_b, pack_a, panel, few};
};

}  // namespace
}  // namespace stretto::kernels
