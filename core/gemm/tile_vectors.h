// Tiles of A or B in AVX-512 registers: loading, splitting into bf16 terms, transposing.
#pragma once

#if defined(__x86_64__)
#include <immintrin.h>

#include <algorithm>
#include <cstdint>

#include "../dtype.h"
#include "../simd/transpose_avx512.h"

#define STRETTO_BF16_TARGET __attribute__((target("avx512f,avx512bw,avx512vl,avx512dq,avx512bf16")))
#define STRETTO_BF16_INLINE STRETTO_BF16_TARGET __attribute__((always_inline)) static inline

namespace stretto::kernels {
namespace {

// A mask of the first n of 32 elements.
STRETTO_BF16_INLINE uint32_t first(int64_t n) {
  return n >= 32 ? ~0u : n <= 0 ? 0u : (1u << n) - 1;
}

// Splits 32 elements (32 of k, or 16 of each of two rows) into bf16 terms.
STRETTO_BF16_INLINE void split(__m512 low, __m512 high, int terms, __m512i* out) {
  for (int t = 0;; ++t) {
    const __m512i term = (__m512i)_mm512_cvtne2ps_pbh(high, low);
    out[t] = term;
    if (t + 1 == terms) return;
    const __m256i l = _mm512_castsi512_si256(term), h = _mm512_extracti64x4_epi64(term, 1);
    low = _mm512_sub_ps(low, (__m512)_mm512_slli_epi32(_mm512_cvtepu16_epi32(l), 16));
    high = _mm512_sub_ps(high, (__m512)_mm512_slli_epi32(_mm512_cvtepu16_epi32(h), 16));
  }
}
// Loads the elements in mask n from p and those in mask m from q, zeros for the others, as terms.
STRETTO_BF16_INLINE void fetch(const float* p, const float* q, uint32_t n, uint32_t m, int terms,
                               __m512i* out) {
  split(_mm512_maskz_loadu_ps(__mmask16(n), p), _mm512_maskz_loadu_ps(__mmask16(m), q), terms, out);
}
STRETTO_BF16_INLINE void fetch(const BFloat16* p, const BFloat16* q, uint32_t n, uint32_t m, int,
                               __m512i* out) {
  // Masked loads of 16-bit elements are slow, so full vectors are loaded without a mask.
  const __m256i low = n == 0xffff ? _mm256_loadu_si256((const __m256i*)p)
                                  : _mm256_maskz_loadu_epi16(__mmask16(n), p);
  const __m256i high = m == 0xffff ? _mm256_loadu_si256((const __m256i*)q)
                                   : _mm256_maskz_loadu_epi16(__mmask16(m), q);
  out[0] = _mm512_inserti64x4(_mm512_castsi256_si512(low), high, 1);
}

// Loads a tile of 16 rows (of A) or columns (of B) with 32 values of k each, split into bf16 terms;
// `outer` rows or columns and `k` values exist, the rest is zero. If `along_k`, the result has the
// layout of a tile of A (core/gemm/tiles.h), else that of a tile of B; for the other operand the
// caller transposes it.
template <class T, int terms, bool along_k>
STRETTO_BF16_INLINE void load_tile(const T* x, int64_t ld, int64_t outer, int64_t k,
                                   __m512i (*rows)[16]) {
  if constexpr (along_k && sizeof(T) == 2)
    if (outer >= 16 && k >= 32) {
#pragma GCC unroll 16
      for (int r = 0; r < 16; ++r) rows[0][r] = _mm512_loadu_si512(x + r * ld);
      return;
    }
  const __m512i weave = _mm512_setr_epi32(  // alternates elements of the low and the high half
      0x100000, 0x110001, 0x120002, 0x130003, 0x140004, 0x150005, 0x160006, 0x170007, 0x180008,
      0x190009, 0x1a000a, 0x1b000b, 0x1c000c, 0x1d000d, 0x1e000e, 0x1f000f);
  __m512i one[terms];
#pragma GCC unroll 16
  for (int r = 0; r < 16; ++r) {
    if constexpr (along_k) {
      const T* from = x + r * ld;
      const uint32_t mask = r < outer ? first(k) : 0;
      fetch(from, from + 16, mask & 0xffff, mask >> 16, terms, one);
    } else {
      const T* from = x + 2 * r * ld;
      const uint32_t mask = first(std::min<int64_t>(16, outer));
      fetch(from, from + ld, 2 * r < k ? mask : 0, 2 * r + 1 < k ? mask : 0, terms, one);
      for (int t = 0; t < terms; ++t) one[t] = _mm512_permutexvar_epi16(weave, one[t]);
    }
    for (int t = 0; t < terms; ++t) rows[t][r] = one[t];
  }
}

}  // namespace
}  // namespace stretto::kernels
#endif
