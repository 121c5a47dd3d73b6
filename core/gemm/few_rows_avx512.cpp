// Products with few rows of A and an unpacked B (FewRows in core/gemm/tiles.h), summed like
// vdpbf16ps or like AMX tile products. From the outermost loop to the innermost:
//
//   strips of 16 columns of C, or several if B is not transposed: their sums stay in L1
//   blocks of k: the next block of B is prefetched meanwhile
//   tiles of B, 32 of k × 16 columns: loaded, split into bf16 terms and transposed in registers
//   pairs of k, rows of A: one multiplication for 16 columns
//
// In registers a tile of B has 16 vectors y[pair][column] of two bf16; the sums of a strip are one
// vector [16] for each row.
#include "core/gemm/blocks.h"
#include "core/gemm/prefetch.h"
#include "core/gemm/tiles.h"

#if defined(__x86_64__)
#include <bit>
#include <cstring>
#include <type_traits>
#include <variant>

#include "core/gemm/tile_vectors.h"

namespace stretto::kernels {
namespace {

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

// The width of a block of B in strips of 16 columns. A B that is not transposed has blocks of 32 rows
// of 512 bytes.
template <class T, bool transposed>
constexpr int64_t most_strips = transposed ? 1 : 512 / sizeof(T) / tile_side;

// The product with m ≤ R rows: like AMX tile products (`amx`) in the order given in
// core/gemm/tiles.h, with subnormals flushed to zero, else like vdpbf16ps.
template <class T, bool amx, int products, int R, bool transposed>
struct Rows {
  static constexpr int terms = terms_of(products);
  static constexpr int64_t most = most_strips<T, transposed>, step = tile_side * most;
  using OfA = std::conditional_t<amx, float, uint16_t>;
  using Sums = float (*)[R][16];  // of a strip

  // A block of B of k rows and n columns, with the rows of A, whose terms are `term` elements apart.
  struct Block {
    int64_t n, k;
    MatrixRef<T> b;
    const OfA* a;
    int64_t term;
    Prefetch ahead;
  };

  STRETTO_BF16_INLINE void load(const float (*from)[16], __m512* sum) {
#pragma GCC unroll 8
    for (int i = 0; i < R; ++i) sum[i] = _mm512_loadu_ps(from[i]);
  }
  STRETTO_BF16_INLINE void store(const __m512* sum, float (*to)[16]) {
#pragma GCC unroll 8
    for (int i = 0; i < R; ++i) _mm512_storeu_ps(to[i], sum[i]);
  }

  // Adds the products with a tile of B.
  STRETTO_BF16_INLINE void add(const OfA* a, int64_t term, const __m512i (*y)[16], __m512* sum) {
    if constexpr (!amx) {
      add_pairs<R>(a, y[0], sum);
    } else if constexpr (products == 1) {
      add_tile<R>(a, y[0], sum);
    } else {
      add_tile<R>(a + term, y[0], sum), add_tile<R>(a, y[0], sum);
      add_tile<R>(a, y[1], sum);
    }
  }

  // Adds the products with a block of B. The sums stay in registers if there is only one strip.
  STRETTO_BF16_TARGET __attribute__((noinline)) static void add_block(const Block& o, Sums sums) {
    const int64_t tiles = ceil_div(o.k, tile_k), strips = most == 1 ? 1 : ceil_div(o.n, tile_side);
    Prefetch ahead = o.ahead;
    __m512 sum[R];
    if (most == 1) load(sums[0], sum);
    for (int64_t t = 0; t < tiles; ++t)
      for (int64_t x = 0; x < strips; ++x) {
        ahead.step();
        __m512i y[terms][16];
        const T* const from =
            o.b.data + (transposed ? t * tile_k : t * tile_k * o.b.ld + x * tile_side);
        load_b<T, terms, transposed>(from, o.b.ld, o.n - x * tile_side, o.k - t * tile_k, y);
        if (most > 1) load(sums[x], sum);
        add(o.a + t * tile_k * R, o.term, y, sum);
        if (most > 1) store(sum, sums[x]);
      }
    if (most == 1) store(sum, sums[0]);
  }

  static void run(const MatrixProduct<T>& o, const void* packed) {
    const int64_t n = o.n, k = o.k;
    const bool add = o.beta != 0;
    const int64_t block = transposed ? std::min(round_up(k, tile_k), prefetched_columns) : tile_k;
    for (int64_t j = 0; j < n; j += step) {
      const int64_t columns = std::min(step, n - j);
      alignas(64) float sum[most][R][16] = {};
      const auto each_run = [&](auto&& copy) {  // calls copy(range of C, range of sums, columns)
        for (int64_t x = 0; x < columns; x += tile_side)
          for (int64_t i = 0; i < o.m; ++i)
            copy(o.c + i * o.ldc + j + x, sum[x / tile_side][i], std::min(tile_side, columns - x));
      };
      if (add) each_run([](float* of_c, float* s, int64_t count) { std::copy_n(of_c, count, s); });
      for (int64_t p = 0; p < k; p += block) {
        const int64_t depth = std::min(block, k - p);
        const bool last = p + block >= k;
        const int64_t next_columns = std::min(step, last ? n - j - step : n - j);
        const int64_t ahead = transposed ? next_columns : next_columns > 0 ? depth : 0;
        const MatrixRef<T> next = last ? o.b.from(0, j + step) : o.b.from(p + block, j);
        const Block of_b{
            columns,
            depth,
            o.b.from(p, j),
            static_cast<const OfA*>(packed) + p * R,
            padded_terms(k) * R,
            Prefetch(next.data, ahead, next.ld * int64_t(sizeof(T)),
                     (transposed ? depth : next_columns) * int64_t(sizeof(T)),
                     ceil_div(depth, tile_k) * (transposed ? 1 : ceil_div(columns, tile_side)))};
        [[maybe_unused]] const std::conditional_t<amx, Flushed, std::monostate> mode;
        add_block(of_b, sum);
      }
      each_run([](float* of_c, const float* s, int64_t count) { std::copy_n(s, count, of_c); });
    }
  }
};

template <class T, bool amx, int products, int R>
void run_rows(const MatrixProduct<T>& o, const void* packed) {
  o.b.transposed ? Rows<T, amx, products, R, true>::run(o, packed)
                 : Rows<T, amx, products, R, false>::run(o, packed);
}
template <class T, bool amx, int products>
void run_products(const MatrixProduct<T>& o, const void* packed) {
  const int64_t rows = padded_rows(o.m);
  if (rows == 1) return run_rows<T, amx, products, 1>(o, packed);
  if (rows == 2) return run_rows<T, amx, products, 2>(o, packed);
  if constexpr (most_few_rows(products) >= 4)
    if (rows == 4) return run_rows<T, amx, products, 4>(o, packed);
  if constexpr (most_few_rows(products) >= 8) run_rows<T, amx, products, 8>(o, packed);
}
template <class T, bool amx>
void run(int products, const MatrixProduct<T>& o, const void* packed) {
  if constexpr (amx && sizeof(T) == 4) {
    if (products == 3) return run_products<T, amx, 3>(o, packed);
  }
  run_products<T, amx, 1>(o, packed);
}

// Splits 32 elements of a row into bf16 terms.
template <class T, int terms>
STRETTO_BF16_TARGET void split_row(const T* x, int64_t k, uint32_t (*out)[16]) {
  __m512i one[terms];
  fetch(x, x + 16, first(k) & 0xffff, first(k) >> 16, terms, one);
  for (int t = 0; t < terms; ++t) _mm512_storeu_si512(out[t], one[t]);
}

template <class T, bool amx>
int64_t bytes(int products, int64_t m, int64_t k) {
  return padded_rows(m) * padded_terms(k) * (amx ? 4 * terms_of(products) : 2);
}

template <class T, bool amx>
void pack(int products, int64_t m, int64_t k, MatrixRef<T> a, void* packed) {
  const int64_t R = padded_rows(m), term = padded_terms(k) * R;
  const int terms = terms_of(products);
  if (R > m) std::memset(packed, 0, size_t(bytes<T, amx>(products, m, k)));
  auto* const split = terms == 1 ? split_row<T, 1> : split_row<T, 2>;
  for (int64_t i = 0; i < m; ++i)
    for (int64_t p = 0; p < k; p += tile_k) {
      const int64_t depth = std::min(tile_k, k - p);
      T row[tile_k] = {};
      const MatrixRef<T> from = a.from(i, p);
      for (int64_t q = 0; a.transposed && q < depth; ++q) row[q] = *from.from(0, q).data;
      uint32_t all[2][tile_k / 2] = {};
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
constexpr FewRows<T> kernels_of{bytes<T, amx>, pack<T, amx>, run<T, amx>};

}  // namespace

template <class T>
const FewRows<T>& few_rows_amx() {
  return kernels_of<T, true>;
}
template <class T>
const FewRows<T>& few_rows_avx512() {
  return kernels_of<T, false>;
}
template const FewRows<float>& few_rows_amx();
template const FewRows<BFloat16>& few_rows_amx();
template const FewRows<float>& few_rows_avx512();
template const FewRows<BFloat16>& few_rows_avx512();

}  // namespace stretto::kernels
#endif
