// The implementation of core/gemm/kernels.h for all instruction sets. A source file first includes
// the header with the vector type V of one instruction set (core/simd/), and then uses
// `GemmTiles<V, rows, vectors>::kernels`.
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>

#include "../simd/vectors.h"
#include "kernels.h"
#include "prefetch.h"

namespace stretto::kernels {
namespace {

template <class V, int tile_rows, int vectors>
struct GemmTiles {
  using T = typename V::Scalar;
  using Vector = typename V::Vector;
  static constexpr int w = V::width, columns = w * vectors;

  // Loads a [count, n] block of a B that is stored transposed: n columns of `count` contiguous
  // terms, transposed so that rows[p] is the vector of term p of all columns. Zeros fill the rest.
  template <class B>
  STRETTO_SIMD_INLINE void load_transposed(const B* b, int64_t ld, int64_t n, int64_t count,
                                           Vector* rows) {
    if (count == w && n == w) {
#pragma GCC unroll 16
      for (int i = 0; i < w; ++i) rows[i] = V::load(b + i * ld);
    } else {
      for (int i = 0; i < w; ++i) rows[i] = i < n ? V::load(b + i * ld, count) : V::set1(T(0));
    }
    if constexpr (requires { V::transpose(rows); })
      V::transpose(rows);
    else
      simd::transpose_rows<V>(rows);
  }

  STRETTO_SIMD_TARGET static void pack_b(MatrixRef<T> b, int64_t k, int64_t n, T* panel) {
    const T* from = b.data;
    if (!b.transposed && n == columns) {
      for (int64_t p = 0; p < k; ++p, from += b.ld, panel += columns)
#pragma GCC unroll 4
        for (int v = 0; v < vectors; ++v) V::store(panel + v * w, V::load(from + v * w));
      return;
    }
    if (!b.transposed) {
      for (int64_t p = 0; p < k; ++p, from += b.ld, panel += columns)
        for (int v = 0; v < vectors; ++v) V::store(panel + v * w, V::load(from + v * w, n - v * w));
      return;
    }
    for (int v = 0; v < vectors; ++v, from += w * b.ld, panel += w) {
      const int64_t width = std::clamp<int64_t>(n - v * w, 0, w);
      for (int64_t p = 0; p < k; p += w) {
        Vector rows[w];
        const int64_t count = std::min<int64_t>(w, k - p);
        load_transposed(from + p, b.ld, width, count, rows);
        for (int64_t i = 0; i < count; ++i) V::store(panel + (p + i) * columns, rows[i]);
      }
    }
  }

  STRETTO_SIMD_TARGET static void pack_a(MatrixRef<T> a, int64_t m, int64_t k, int64_t step,
                                         T* panels) {
    constexpr int64_t chunk = 32;  // rows of k at a time: neighboring panels may share cache lines
    for (int64_t p = 0; p < k; p += chunk)
      for (int64_t i = 0; i < m; i += step) {
        const int64_t rows = std::min(step, m - i);
        const T* from = a.data + p * a.ld + i;
        T* to = panels + i / step * k * tile_rows + p * tile_rows;
        for (int64_t q = p; q < std::min(k, p + chunk); ++q, from += a.ld, to += tile_rows)
#pragma GCC unroll 4
          for (int r = 0; r < tile_rows; r += w)
            V::store(to + r, V::load(from + r, rows - r), tile_rows - r);
      }
  }

  // Computes one tile of C with R rows and n ≤ columns; `by_columns` if A is stored transposed.
  template <int R, bool by_columns>
  STRETTO_SIMD_TARGET static void tile(const MatrixProduct<T>& o) {
    const int64_t n = o.n, k = o.k, stride = o.a.ld, ldb = o.b.ld, ldc = o.ldc;
    const T alpha = o.alpha, beta = o.beta, *const a = o.a.data, *b = o.b.data;
    T* c = o.c;
#pragma GCC unroll 1
    for (int i = 0; i < R; ++i)
      for (int v = 0; v < vectors; ++v) __builtin_prefetch(c + i * ldc + v * w, 1);
    Vector sum[R][vectors];
#pragma GCC unroll 16
    for (int i = 0; i < R; ++i)
#pragma GCC unroll 4
      for (int v = 0; v < vectors; ++v) sum[i][v] = V::set1(T(0));
    // One pointer per three rows: x86 addressing reaches base, base + s and base + 2s.
    constexpr int pointers = by_columns ? 1 : (R + 2) / 3;
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
    for (int i = 0; i < R; ++i, c += ldc)
#pragma GCC unroll 4
      for (int v = 0; v < vectors; ++v) finish(sum[i][v], alpha, beta, c + v * w, n - v * w);
  }

  // C = alpha · sum + beta · C for n ≤ w elements of a row.
  STRETTO_SIMD_INLINE void finish(Vector sum, T alpha, T beta, T* c, int64_t n) {
    const Vector y = V::set1(alpha) * sum, factor = V::set1(beta);
    if (n >= w)
      V::store(c, beta == T(0) ? y : V::fma(factor, V::load(c), y));
    else if (n > 0)
      V::store(c, beta == T(0) ? y : V::fma(factor, V::load(c, n), y), n);
  }

  // Gemm::few for a B that is stored transposed, w columns at a time. While they are computed, the
  // next w columns are prefetched, or the next blocks of the same ones if k is large.
  template <class B, int R>
  STRETTO_SIMD_TARGET static void few_transposed(const MatrixProduct<T, B>& o, int64_t block) {
    const int64_t n = o.n, k = o.k, ldb = o.b.ld;
    const int64_t span = std::max<int64_t>(prefetched_columns / block, 1) * block;
    for (int64_t j = 0; j < n; j += w)
      for (int64_t begin = 0; begin < k; begin += span) {
        const int64_t end = std::min(begin + span, k);
        const bool last = end == k;
        const B* const b = o.b.data + j * ldb;
        Prefetch ahead(last ? b + w * ldb : b + end,
                       std::clamp<int64_t>(last ? n - j - w : n - j, 0, w),
                       ldb * int64_t(sizeof(B)),
                       (last ? std::min(span, k) : std::min(span, k - end)) * int64_t(sizeof(B)),
                       (end - begin + w - 1) / w);
        for (int64_t p = begin; p < end; p += block) {
          MatrixProduct<T, B> part = o.columns(j, std::min<int64_t>(w, n - j));
          part.k = std::min(block, end - p);
          part.a.data += p * R, part.b.data += p;
          if (p > 0) part.beta = T(1);
          few_block<B, R>(part, ahead);
        }
      }
  }

  // The same for a block of k and n ≤ w columns of B.
  template <class B, int R>
  STRETTO_SIMD_INLINE void few_block(const MatrixProduct<T, B>& o, Prefetch& ahead) {
    Vector sum[R];
#pragma GCC unroll 8
    for (int i = 0; i < R; ++i) sum[i] = V::set1(T(0));
    for (int64_t q = 0; q < o.k; q += w) {
      ahead.step();
      const int64_t count = std::min<int64_t>(w, o.k - q);
      const T* const x = o.a.data + q * R;
      Vector y[w];
      load_transposed(o.b.data + q, o.b.ld, o.n, count, y);
      if (count == w) {
#pragma GCC unroll 16
        for (int t = 0; t < w; ++t)
#pragma GCC unroll 8
          for (int i = 0; i < R; ++i) sum[i] = V::fma(V::set1(x[t * R + i]), y[t], sum[i]);
      } else {
        for (int t = 0; t < count; ++t)
#pragma GCC unroll 8
          for (int i = 0; i < R; ++i) sum[i] = V::fma(V::set1(x[t * R + i]), y[t], sum[i]);
      }
    }
#pragma GCC unroll 8
    for (int i = 0; i < R; ++i) finish(sum[i], o.alpha, o.beta, o.c + i * o.ldc, o.n);
  }

  // Gemm::few for a B that is not transposed, eight rows of B at a time. The sums of 512 columns
  // stay in L1.
  template <class B, int R>
  STRETTO_SIMD_TARGET static void few_straight(const MatrixProduct<T, B>& o, int64_t block) {
    constexpr int64_t chunk = 512, high = 8;
    const int64_t n = o.n, k = o.k, ldb = o.b.ld, ldc = o.ldc;
    const T alpha = o.alpha, beta = o.beta, *const a = o.a.data;
    const B* const b = o.b.data;
    T* const c = o.c;
    alignas(64) T sums[R][chunk];
    for (int64_t j = 0; j < n; j += chunk) {
      const int64_t width = std::min(chunk, n - j);
      for (int64_t p = 0; p < k; p += block) {
        const int64_t end = std::min(k, p + block);
        for (int i = 0; i < R; ++i)
          for (int64_t x = 0; x < width; x += w) V::store(sums[i] + x, V::set1(T(0)));
        for (int64_t q = p; q < end; q += high) {
          const int64_t count = std::min(high, end - q);
          for (int64_t x = 0; x < width; x += w) {
            const B* const from = b + q * ldb + j + x;
            if (count == high && width - x >= w) {
              Vector y[high];
#pragma GCC unroll 8
              for (int t = 0; t < high; ++t) {
                __builtin_prefetch(from + (t + high) * ldb);
                y[t] = V::load(from + t * ldb);
              }
#pragma GCC unroll 8
              for (int i = 0; i < R; ++i) {
                Vector sum = V::load(sums[i] + x);
#pragma GCC unroll 8
                for (int t = 0; t < high; ++t) sum = V::fma(V::set1(a[(q + t) * R + i]), y[t], sum);
                V::store(sums[i] + x, sum);
              }
            } else {
              for (int t = 0; t < count; ++t) {
                const Vector y = V::load(from + t * ldb, width - x);
                for (int i = 0; i < R; ++i)
                  V::store(sums[i] + x,
                           V::fma(V::set1(a[(q + t) * R + i]), y, V::load(sums[i] + x)));
              }
            }
          }
        }
        for (int i = 0; i < R; ++i)
          for (int64_t x = 0; x < width; x += w)
            finish(V::load(sums[i] + x), alpha, p == 0 ? beta : T(1), c + i * ldc + j + x,
                   width - x);
      }
    }
  }

  template <class B, int... R>
  static auto choose_few(int64_t rows, bool transposed, std::integer_sequence<int, R...>) {
    using Few = void (*)(const MatrixProduct<T, B>&, int64_t);
    static constexpr Few of_transposed[] = {few_transposed<B, R + 1>...},
                         of_straight[] = {few_straight<B, R + 1>...};
    return (transposed ? of_transposed : of_straight)[rows - 1];
  }
  template <class B>
  static void few(const MatrixProduct<T, B>& product, int64_t block) {
    constexpr auto rows = std::make_integer_sequence<int, few_rows>();
    choose_few<B>(product.m, product.b.transposed, rows)(product, block);
  }
  static constexpr auto few_of_bf16() {
    if constexpr (sizeof(T) == 4)
      return few<BFloat16>;
    else
      return nullptr;
  }

  template <int... R>
  static auto choose(int64_t rows, bool by_columns, std::integer_sequence<int, R...>) {
    using Tile = void (*)(const MatrixProduct<T>&);
    static constexpr Tile of_columns[] = {tile<R + 1, true>...},
                          of_rows[] = {tile<R + 1, false>...};
    return (by_columns ? of_columns : of_rows)[rows - 1];
  }
  static void panel(const MatrixProduct<T>& product, TileRows tiles) {
    constexpr auto heights = std::make_integer_sequence<int, tile_rows>();
    MatrixProduct<T> o = product;
    for (int64_t i = 0; i < product.m; i += tiles.rows) {
      o.m = std::min(tiles.rows, product.m - i);
      choose(o.m, o.a.transposed, heights)(o);
      o.a.data += tiles.stride, o.c += tiles.rows * o.ldc;
    }
  }

  static constexpr Gemm<T> kernels{tile_rows, columns, pack_b,       pack_a,
                                   panel,     few<T>,  few_of_bf16()};
};

}  // namespace
}  // namespace stretto::kernels
