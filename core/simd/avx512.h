// AVX-512: vectors of 64 bytes.
#pragma once

#include "transpose_avx512.h"

#define STRETTO_SIMD_TARGET __attribute__((target("avx512f,fma")))
#include "vectors.h"

namespace stretto::simd {
namespace {

struct F32 {
  using Scalar = float;
  using Vector = __m512;
  static constexpr int width = 16;
  STRETTO_SIMD_INLINE __mmask16 first(int64_t n) {
    return n >= 16 ? __mmask16(0xffff) : n <= 0 ? __mmask16(0) : __mmask16((1u << n) - 1);
  }
  STRETTO_SIMD_INLINE Vector set1(float x) { return _mm512_set1_ps(x); }
  STRETTO_SIMD_INLINE Vector load(const float* p) { return _mm512_loadu_ps(p); }
  STRETTO_SIMD_INLINE Vector load(const float* p, int64_t n) {
    return _mm512_maskz_loadu_ps(first(n), p);
  }
  STRETTO_SIMD_INLINE Vector load(const BFloat16* p) {
    const __m256i x = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
    return (__m512)_mm512_slli_epi32(_mm512_cvtepu16_epi32(x), 16);
  }
  STRETTO_SIMD_INLINE Vector load(const BFloat16* p, int64_t n) { return load_first<F32>(p, n); }
  STRETTO_SIMD_INLINE void store(float* p, Vector x) { _mm512_storeu_ps(p, x); }
  STRETTO_SIMD_INLINE void store(float* p, Vector x, int64_t n) {
    _mm512_mask_storeu_ps(p, first(n), x);
  }
  STRETTO_SIMD_INLINE Vector fma(Vector a, Vector b, Vector c) { return _mm512_fmadd_ps(a, b, c); }
  STRETTO_SIMD_INLINE void transpose(Vector* rows) {
    __m512i r[16];
#pragma GCC unroll 16
    for (int i = 0; i < 16; ++i) r[i] = (__m512i)rows[i];
    simd::transpose(r);
#pragma GCC unroll 16
    for (int i = 0; i < 16; ++i) rows[i] = (__m512)r[i];
  }
};

struct F64 {
  using Scalar = double;
  using Vector = __m512d;
  static constexpr int width = 8;
  STRETTO_SIMD_INLINE __mmask8 first(int64_t n) {
    return n >= 8 ? __mmask8(0xff) : n <= 0 ? __mmask8(0) : __mmask8((1u << n) - 1);
  }
  STRETTO_SIMD_INLINE Vector set1(double x) { return _mm512_set1_pd(x); }
  STRETTO_SIMD_INLINE Vector load(const double* p) { return _mm512_loadu_pd(p); }
  STRETTO_SIMD_INLINE Vector load(const double* p, int64_t n) {
    return _mm512_maskz_loadu_pd(first(n), p);
  }
  STRETTO_SIMD_INLINE void store(double* p, Vector x) { _mm512_storeu_pd(p, x); }
  STRETTO_SIMD_INLINE void store(double* p, Vector x, int64_t n) {
    _mm512_mask_storeu_pd(p, first(n), x);
  }
  STRETTO_SIMD_INLINE Vector fma(Vector a, Vector b, Vector c) { return _mm512_fmadd_pd(a, b, c); }
};

}  // namespace
}  // namespace stretto::simd
