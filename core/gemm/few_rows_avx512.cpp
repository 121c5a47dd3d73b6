// Products with few rows of A and an unpacked B (FewRows in core/gemm/tiles.h), summed like
// vdpbf16ps or like AMX tile products. While a tile of B is loaded, split and transposed in
// registers, a later tile is prefetched.
#include "core/gemm/blocks.h"
#include "core/gemm/prefetch.h"
#include "core/gemm/tiles.h"

#if defined(__x86_64__)
#include <bit>
#include <cstring>

#include "core/gemm/tile_vectors.h"

namespace stretto::kernels {
namespace {

constexpr int terms_of(int products) { return products == 6 ? 3 : products == 3 ? 2 : 1; }

// The number of rows is padded with zeros to 1, 2, 4 or 8.
int64_t padded_rows(int64_t m) { return m <= 2 ? m : m <= 4 ? 4 : 8; }
int64_t padded_terms(int64_t k) { return round_up(k, tile_k); }

// Loads 16 columns of B with 32 values of k each, as pairs of k.
template <class T, int terms, bool transposed>
STRETTO_BF16_INLINE void load_b(const T* b, int64_t ld, int64_t n, int64_t k, __m512i (*y)[16]) {
  load_tile<T, terms, transposed>(b, ld, n, k, y);
  for (int t = 0; transposed && t < terms; ++t) simd::transpose(y[t]);
}

// sum += a · y in the order of vdpbf16ps: one pair of k after the other. a: pairs [16][R].
template <int R>
STRETTO_BF16_INLINE void add_pairs(const uint16_t* a, const __m512i* y, __m512* sum) {
#pragma GCC unroll 16
  for (int q = 0; q < 16; ++q)
#pragma GCC unroll 8
    for (int i = 0; i < R; ++i) {
      int two;
      std::memcpy(&two, a + 2 * (q * R + i), sizeof two);
      sum[i] = _mm512_dpbf16_ps(sum[i], (__m512bh)_mm512_set1_epi32(two), (__m512bh)y[q]);
    }
}

// sum += a · y in the order of an AMX tile product (core/gemm/emulated.cpp). a: [32][R].
template <int R>
STRETTO_BF16_INLINE void add_tile(const float* a, const __m512i* y, __m512* sum) {
  const __m512i upper = _mm512_set1_epi32(int(0xffff0000u));
  __m512 even[R], odd[R];
#pragma GCC unroll 8
  for (int i = 0; i < R; ++i) even[i] = odd[i] = _mm512_setzero_ps();
#pragma GCC unroll 16
  for (int q = 0; q < 16; ++q) {
    const auto first_of_pair = (__m512)_mm512_slli_epi32(y[q], 16);
    const auto second_of_pair = (__m512)_mm512_and_si512(y[q], upper);
#pragma GCC unroll 8
    for (int i = 0; i < R; ++i) {
      even[i] = _mm512_fmadd_ps(_mm512_set1_ps(a[2 * q * R + i]), first_of_pair, even[i]);
      odd[i] = _mm512_fmadd_ps(_mm512_set1_ps(a[(2 * q + 1) * R + i]), second_of_pair, odd[i]);
    }
  }
#pragma GCC unroll 8
  for (int i = 0; i < R; ++i) sum[i] = _mm512_add_ps(sum[i], _mm512_add_ps(even[i], odd[i]));
}

// The width of a block of B in strips of 16 columns. A B that is not transposed has blocks of 32 rows
// of 512 bytes. With 6 products a block must contain all terms of a partial sum and has 64 columns.
template <class T, int products, bool transposed>
constexpr int64_t most_strips = transposed      ? 1
                                : products == 6 ? 4
                                                : 512 / sizeof(T) / tile_side;

// Adds the products with one block of B to the sums of R rows and n columns, which are stored in
// strips of 16 columns: pairs() in the order of vdpbf16ps, as_tiles() in the order given in
// core/gemm/tiles.h, with subnormals flushed to zero. The terms of A are `term` elements apart.
template <class T, int products, int R, bool transposed>
struct Block {
  static constexpr int terms = terms_of(products);
  static constexpr int64_t most = most_strips<T, products, transposed>;
  using Sums = float (*)[R][16];
  int64_t n, k;
  const T* b;
  int64_t ldb;
  Prefetch ahead;

  int64_t tiles() const { return ceil_div(k, tile_k); }
  int64_t strips() const { return most == 1 ? 1 : ceil_div(n, tile_side); }

  STRETTO_BF16_INLINE void load(const float (*from)[16], __m512* sum) {
#pragma GCC unroll 8
    for (int i = 0; i < R; ++i) sum[i] = _mm512_loadu_ps(from[i]);
  }
  STRETTO_BF16_INLINE void store(const __m512* sum, float (*to)[16]) {
#pragma GCC unroll 8
    for (int i = 0; i < R; ++i) _mm512_storeu_ps(to[i], sum[i]);
  }

  // Calls f(tile, strip, y, sums). The sums stay in registers if there is only one strip.
  template <class F>
  STRETTO_BF16_INLINE void each_tile(const Block& o, Sums sums, F&& f) {
    const int64_t tiles = o.tiles(), strips = o.strips();
    Prefetch ahead = o.ahead;
    __m512 sum[R];
    if (most == 1) load(sums[0], sum);
    for (int64_t t = 0; t < tiles; ++t)
      for (int64_t x = 0; x < strips; ++x) {
        ahead.step();
        __m512i y[terms][16];
        load_b<T, terms, transposed>(
            o.b + (transposed ? t * tile_k : t * tile_k * o.ldb + x * tile_side), o.ldb,
            o.n - x * tile_side, o.k - t * tile_k, y);
        if (most > 1) load(sums[x], sum);
        f(t, x, y, sum);
        if (most > 1) store(sum, sums[x]);
      }
    if (most == 1) store(sum, sums[0]);
  }

  STRETTO_BF16_TARGET static void pairs(const Block& o, const uint16_t* a, Sums sums) {
    each_tile(o, sums,
              [a](int64_t t, int64_t, const __m512i(*y)[16], __m512* sum)
                  STRETTO_BF16_LAMBDA { add_pairs<R>(a + t * tile_k * R, y[0], sum); });
  }

  STRETTO_BF16_TARGET __attribute__((noinline)) static void as_tiles(const Block& o, const float* a,
                                                                     int64_t term, Sums sums) {
    __m512i high[products == 6 ? block_k / tile_k : 1][products == 6 ? most : 1][16];
    each_tile(o, sums,
              [&](int64_t t, int64_t x, const __m512i(*y)[16], __m512* sum) STRETTO_BF16_LAMBDA {
                const float* const at = a + t * tile_k * R;
                if constexpr (products == 1) {
                  add_tile<R>(at, y[0], sum);
                } else if constexpr (products == 3) {
                  add_tile<R>(at + term, y[0], sum), add_tile<R>(at, y[0], sum);
                  add_tile<R>(at, y[1], sum);
                } else {
                  add_tile<R>(at + 2 * term, y[0], sum), add_tile<R>(at + term, y[0], sum);
                  add_tile<R>(at + term, y[1], sum), add_tile<R>(at, y[1], sum);
                  add_tile<R>(at, y[2], sum);
                  for (int i = 0; i < 16; ++i) high[t][x][i] = y[0][i];
                }
              });
    const int64_t tiles = o.tiles(), strips = o.strips();
    for (int64_t x = 0; products == 6 && x < strips; ++x) {
      __m512 sum[R];
      load(sums[x], sum);
      for (int64_t t = 0; t < tiles; ++t) add_tile<R>(a + t * tile_k * R, high[t][x], sum);
      store(sum, sums[x]);
    }
  }
};

// A scope with flush-to-zero and denormals-are-zero.
class Flushed {
 public:
  Flushed() { _mm_setcsr(control_ | 0x8040u); }
  ~Flushed() { _mm_setcsr(control_); }
  Flushed(const Flushed&) = delete;
  Flushed& operator=(const Flushed&) = delete;

 private:
  const unsigned control_ = _mm_getcsr();
};

// The product with m ≤ R rows; `of_sums` is the number of terms of a partial sum.
template <class T, bool amx, int products, int R, bool transposed>
void run_as(int64_t m, int64_t n, int64_t k, int64_t of_sums, const void* packed, const T* b,
            int64_t ldb, float* c, int64_t ldc, bool add) {
  const int64_t along = transposed ? 1 : ldb, across = transposed ? ldb : 1;
  using RowsBlock = Block<T, products, R, transposed>;
  constexpr int64_t most = RowsBlock::most, step = tile_side * most;
  const int64_t block = products == 6 ? of_sums
                        : transposed  ? std::min(round_up(k, tile_k), prefetched_columns)
                                      : tile_k;
  for (int64_t j = 0; j < n; j += step) {
    const int64_t columns = std::min(step, n - j);
    alignas(64) float sum[most][R][16] = {};
    const auto each_run = [&](auto&& copy) {  // calls copy(range of C, range of sums, columns)
      for (int64_t x = 0; x < columns; x += tile_side)
        for (int64_t i = 0; i < m; ++i)
          copy(c + i * ldc + j + x, sum[x / tile_side][i], std::min(tile_side, columns - x));
    };
    if (add) each_run([](float* of_c, float* s, int64_t count) { std::copy_n(of_c, count, s); });
    for (int64_t p = 0; p < k; p += block) {
      const int64_t depth = std::min(block, k - p);
      const bool last = p + block >= k;
      const T* const from = b + j * across + p * along;
      const T* const next = last ? b + (j + step) * across : from + block * along;
      const int64_t next_columns = std::min(step, last ? n - j - step : n - j);
      const int64_t ahead = transposed ? next_columns : next_columns > 0 ? depth : 0;
      const RowsBlock o{
          columns, depth, from, ldb,
          Prefetch(next, ahead, ldb * int64_t(sizeof(T)),
                   (transposed ? depth : next_columns) * int64_t(sizeof(T)),
                   ceil_div(depth, tile_k) * (transposed ? 1 : ceil_div(columns, tile_side)))};
      if constexpr (!amx) {
        RowsBlock::pairs(o, static_cast<const uint16_t*>(packed) + p * R, sum);
      } else {
        constexpr bool separate = products == 6;  // each partial sum starts at zero
        alignas(64) float part[separate ? most : 1][R][16] = {};
        {
          const Flushed flushed;
          RowsBlock::as_tiles(o, static_cast<const float*>(packed) + p * R, padded_terms(k) * R,
                              separate ? part : sum);
        }
        for (int64_t x = 0; separate && x < most; ++x)
          for (int64_t i = 0; i < R; ++i)
            for (int64_t q = 0; q < 16; ++q)
              sum[x][i][q] = add || p > 0 ? sum[x][i][q] + part[x][i][q] : part[x][i][q];
      }
    }
    each_run([](float* of_c, const float* s, int64_t count) { std::copy_n(s, count, of_c); });
  }
}

template <class T, bool amx, int products, bool transposed>
void run_products(int64_t m, int64_t n, int64_t k, int64_t block, const void* packed, const T* b,
                  int64_t ldb, float* c, int64_t ldc, bool add) {
  const int64_t rows = padded_rows(m);
  auto* run =
      rows == 1 ? run_as<T, amx, products, 1, transposed> : run_as<T, amx, products, 2, transposed>;
  if constexpr (most_few_rows(products) >= 4)
    if (rows == 4) run = run_as<T, amx, products, 4, transposed>;
  if constexpr (most_few_rows(products) >= 8)
    if (rows == 8) run = run_as<T, amx, products, 8, transposed>;
  run(m, n, k, block, packed, b, ldb, c, ldc, add);
}

template <class T, bool amx, bool transposed>
auto choose(int products) {
  if constexpr (amx && sizeof(T) == 4) {
    if (products == 6) return run_products<T, amx, 6, transposed>;
    if (products == 3) return run_products<T, amx, 3, transposed>;
  }
  return run_products<T, amx, 1, transposed>;
}

template <class T, bool amx>
void multiply(int products, int64_t m, int64_t n, int64_t k, int64_t block, const void* packed,
              const T* b, int64_t ldb, bool transposed, float* c, int64_t ldc, bool add) {
  const auto run = transposed ? choose<T, amx, true>(products) : choose<T, amx, false>(products);
  run(m, n, k, block, packed, b, ldb, c, ldc, add);
}

// Splits 32 elements of a row into bf16 terms.
template <class T, int terms>
STRETTO_BF16_TARGET void split_row(const T* x, int64_t k, uint32_t (*out)[16]) {
  __m512i one[terms];
  fetch(x, x + 16, first(k) & 0xffff, first(k) >> 16, terms, one);
  for (int t = 0; t < terms; ++t) _mm512_storeu_si512(out[t], one[t]);
}

template <class T, bool amx>
int64_t size(int products, int64_t m, int64_t k) {
  return padded_rows(m) * padded_terms(k) * (amx ? 4 * terms_of(products) : 2);
}

template <class T, bool amx>
void pack(int products, int64_t m, int64_t k, MatrixRef<T> a, void* packed) {
  const int64_t R = padded_rows(m), term = padded_terms(k) * R;
  const int terms = terms_of(products);
  if (R > m) std::memset(packed, 0, size_t(size<T, amx>(products, m, k)));
  auto* const split = terms == 1 ? split_row<T, 1> : terms == 2 ? split_row<T, 2> : split_row<T, 3>;
  for (int64_t i = 0; i < m; ++i)
    for (int64_t p = 0; p < k; p += tile_k) {
      const int64_t depth = std::min(tile_k, k - p);
      T row[tile_k] = {};
      const MatrixRef<T> from = a.from(i, p);
      for (int64_t q = 0; a.transposed && q < depth; ++q) row[q] = *from.from(0, q).data;
      uint32_t all[3][tile_k / 2] = {};
      if (!amx && R == 1) {  // a row alone has the order of its pairs
        split(a.transposed ? row : from.data, depth,
              reinterpret_cast<uint32_t(*)[16]>(static_cast<uint16_t*>(packed) + p));
        continue;
      }
      split(a.transposed ? row : from.data, depth, all);
      for (int t = 0; t < terms; ++t) {
        if constexpr (amx) {
          float* to = static_cast<float*>(packed) + t * term + p * R + i;
          for (uint32_t pair : all[t]) {
            *to = std::bit_cast<float>(pair << 16), to += R;
            *to = std::bit_cast<float>(pair & 0xffff0000u), to += R;
          }
        } else {
          uint32_t* to = static_cast<uint32_t*>(packed) + p / 2 * R + i;
          for (uint32_t pair : all[t]) *to = pair, to += R;
        }
      }
    }
}

template <class T, bool amx>
constexpr FewRows<T> rows{size<T, amx>, pack<T, amx>, multiply<T, amx>};

}  // namespace

template <class T>
const FewRows<T>& few_rows_amx() {
  return rows<T, true>;
}
template <class T>
const FewRows<T>& few_rows_avx512() {
  return rows<T, false>;
}
template const FewRows<float>& few_rows_amx();
template const FewRows<BFloat16>& few_rows_amx();
template const FewRows<float>& few_rows_avx512();
template const FewRows<BFloat16>& few_rows_avx512();

}  // namespace stretto::kernels
#endif
