// Packing with AVX-512, and the micro-kernels with AMX and with vdpbf16ps.
#include "core/gemm/tiles.h"

#if defined(__x86_64__)
#include <cstring>

#include "core/gemm/tile_products.h"
#include "core/gemm/tile_vectors.h"

namespace stretto::kernels {
namespace {

template <class T, int terms, bool along_k, bool transpose>
STRETTO_BF16_TARGET void pack_as(const MatrixRef<T>& of, int64_t outer, int64_t k,
                                 uint16_t* tiles) {
  const T* const x = of.data;
  const int64_t ld = of.ld;
  for (int64_t o = 0; o < outer; o += tile_side)
    for (int64_t p = 0; p < k; p += tile_k, tiles += terms * tile_size) {
      __m512i rows[terms][16];
      load_tile<T, terms, along_k>(along_k ? x + o * ld + p : x + p * ld + o, ld, outer - o, k - p,
                                   rows);
      for (int t = 0; t < terms; ++t) {
        if (transpose) simd::transpose(rows[t]);
        for (int r = 0; r < 16; ++r)
          _mm512_storeu_si512(tiles + t * tile_size + r * tile_k, rows[t][r]);
      }
    }
}

template <class T, int terms>
void pack_terms(const MatrixRef<T>& x, bool of_b, int64_t outer, int64_t k, uint16_t* tiles) {
  auto* const pack = x.transposed
                         ? of_b ? pack_as<T, terms, false, false> : pack_as<T, terms, false, true>
                     : of_b ? pack_as<T, terms, true, true>
                            : pack_as<T, terms, true, false>;
  pack(x, outer, k, tiles);
}

void pack_f32(const MatrixRef<float>& x, bool of_b, int64_t outer, int64_t k, int terms,
              uint16_t* tiles) {
  auto* const pack = terms == 1 ? pack_terms<float, 1> : pack_terms<float, 2>;
  pack(x, of_b, outer, k, tiles);
}
void pack_bf16(const MatrixRef<BFloat16>& x, bool of_b, int64_t outer, int64_t k, int,
               uint16_t* tiles) {
  pack_terms<BFloat16, 1>(x, of_b, outer, k, tiles);
}

// Computes `height` rows of 16 · vectors columns at a time. The sums start from C and add k pair by
// pair.
template <int height, int vectors>
STRETTO_BF16_TARGET void multiply_columns(const TileProduct& o) {
  const int64_t rows = o.rows, depth = o.depth, a_stride = o.a.stride, b_stride = o.b.stride;
  const uint16_t *const a = o.a.data, *const b = o.b.data;
  const int64_t ldc = o.ldc;
  const bool add = o.add;
  float* c = o.c;
  for (int64_t i = 0; i < rows; ++i)
    for (int j = 0; j < vectors; ++j) __builtin_prefetch(c + i * ldc + 16 * j, 1);
  for (int64_t i = 0; i < rows; i += height, c += height * ldc) {
    const uint16_t* x = a + i / tile_side * a_stride + i % tile_side * tile_k;
    __m512 sum[height][vectors];
#pragma GCC unroll 16
    for (int r = 0; r < height; ++r)
      for (int j = 0; j < vectors; ++j)
        sum[r][j] = add ? _mm512_loadu_ps(c + r * ldc + 16 * j) : _mm512_setzero_ps();
    for (int64_t t = 0; t < depth; ++t) {
      const int64_t pairs = t + 1 == depth ? o.pairs : tile_k / 2;
      for (int64_t pair = 0; pair < pairs; ++pair) {
        const uint16_t* y = b + t * tile_size + pair * tile_k;
        __m512bh right[vectors];
        for (int j = 0; j < vectors; ++j) right[j] = (__m512bh)_mm512_loadu_si512(y + j * b_stride);
#pragma GCC unroll 16
        for (int r = 0; r < height; ++r) {
          int of_a;
          std::memcpy(&of_a, x + t * tile_size + r * tile_k + 2 * pair, sizeof of_a);
          const auto left = (__m512bh)_mm512_set1_epi32(of_a);
          for (int j = 0; j < vectors; ++j) sum[r][j] = _mm512_dpbf16_ps(sum[r][j], left, right[j]);
        }
      }
    }
#pragma GCC unroll 16
    for (int r = 0; r < height; ++r)
      for (int j = 0; j < vectors; ++j) _mm512_storeu_ps(c + r * ldc + 16 * j, sum[r][j]);
  }
}

void multiply_avx512(const TileProduct& o) {
  o.columns <= tile_side ? multiply_columns<16, 1>(o) : multiply_columns<8, 2>(o);
}

// The tile registers of the thread.
struct Amx {
  template <int tile>
  void zero() {
    __asm__ volatile("tilezero %%tmm%c0" ::"i"(tile));
  }
  template <int tile>
  void load(const void* from, int64_t stride) {
    __asm__ volatile("tileloadd (%0,%1,1), %%tmm%c2" ::"r"(from), "r"(stride), "i"(tile)
                     : "memory");
  }
  template <int to, int left, int right>
  void product() {
    __asm__ volatile("tdpbf16ps %%tmm%c2, %%tmm%c1, %%tmm%c0" ::"i"(to), "i"(left), "i"(right));
  }
  template <int tile>
  void store(float* to, int64_t stride) {
    __asm__ volatile("tilestored %%tmm%c2, (%0,%1,1)" ::"r"(to), "r"(stride), "i"(tile) : "memory");
  }
};

void configure_tiles() {  // eight tiles with 16 rows of 64 bytes
  struct alignas(64) Configuration {
    uint8_t palette = 1, start_row = 0, reserved[14] = {};
    uint16_t bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
    uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
  };
  static constexpr Configuration configuration;
  static_assert(sizeof configuration == 64);
  __asm__ volatile("ldtilecfg %0" ::"m"(configuration));
}
void release_tiles() { __asm__ volatile("tilerelease"); }
void nothing() {}

}  // namespace

const TileKernels& tiles_amx() {
  static constexpr TileKernels kernels{pack_f32, pack_bf16, multiply_tiles<Amx>, configure_tiles,
                                       release_tiles};
  return kernels;
}
const TileKernels& tiles_avx512() {
  static constexpr TileKernels kernels{pack_f32, pack_bf16, multiply_avx512,
                                       nothing,  nothing,   true};
  return kernels;
}

}  // namespace stretto::kernels
#endif
