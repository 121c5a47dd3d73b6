// AVX2: vectors of 32 bytes.
#pragma once

#include <immintrin.h>

#define STRETTO_SIMD_TARGET __attribute__((target("avx2,fma")))
#include "vectors.h"

namespace stretto::simd {
namespace {

struct F32 {
  using Scalar = float;
  using Vector = __m256;
  static constexpr int width = 8;
  STRETTO_SIMD_INLINE __m256i first(int64_t n) {
    const int count = int(n < 0 ? 0 : n < 8 ? n : 8);
    return _mm256_cmpgt_epi32(_mm256_set1_epi32(count), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
  }
  STRETTO_SIMD_INLINE Vector set1(float x) { return _mm256_set1_ps(x); }
  STRETTO_SIMD_INLINE Vector load(const float* p) { return _mm256_loadu_ps(p); }
  STRETTO_SIMD_INLINE Vector load(const float* p, int64_t n) {
    return _mm256_maskload_ps(p, first(n));
  }
  STRETTO_SIMD_INLINE Vector load(const BFloat16* p) {
    const __m128i x = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
    return (__m256)_mm256_slli_epi32(_mm256_cvtepu16_epi32(x), 16);
  }
  STRETTO_SIMD_INLINE Vector load(const BFloat16* p, int64_t n) { return load_first<F32>(p, n); }
  STRETTO_SIMD_INLINE void store(float* p, Vector x) { _mm256_storeu_ps(p, x); }
  STRETTO_SIMD_INLINE void store(float* p, Vector x, int64_t n) {
    _mm256_maskstore_ps(p, first(n), x);
  }
  STRETTO_SIMD_INLINE Vector fma(Vector a, Vector b, Vector c) { return _mm256_fmadd_ps(a, b, c); }
};

struct F64 {
  using Scalar = double;
  using Vector = __m256d;
  static constexpr int width = 4;
  STRETTO_SIMD_INLINE __m256i first(int64_t n) {
    return _mm256_cmpgt_epi64(_mm256_set1_epi64x(n), _mm256_setr_epi64x(0, 1, 2, 3));
  }
  STRETTO_SIMD_INLINE Vector set1(double x) { return _mm256_set1_pd(x); }
  STRETTO_SIMD_INLINE Vector load(const double* p) { return _mm256_loadu_pd(p); }
  STRETTO_SIMD_INLINE Vector load(const double* p, int64_t n) {
    return _mm256_maskload_pd(p, first(n));
  }
  STRETTO_SIMD_INLINE void store(double* p, Vector x) { _mm256_storeu_pd(p, x); }
  STRETTO_SIMD_INLINE void store(double* p, Vector x, int64_t n) {
    _mm256_maskstore_pd(p, first(n), x);
  }
  STRETTO_SIMD_INLINE Vector fma(Vector a, Vector b, Vector c) { return _mm256_fmadd_pd(a, b, c); }
};

}  // namespace
}  // namespace stretto::simd
