// Vectors of 32 bytes.
#include "ops/spe/spe_kernels.h"

#if defined(__x86_64__)
#include <immintrin.h>
#define STRETTO_SPE_TARGET __attribute__((target("avx2,fma")))
#include "ops/spe/spe_tile.h"

namespace stretto {
namespace {

struct F32 {
  using Scalar = float;
  using Vector = __m256;
  static constexpr int width = 8;
  STRETTO_SPE_INLINE Vector set1(float x) { return _mm256_set1_ps(x); }
  STRETTO_SPE_INLINE Vector load(const float* p) { return _mm256_loadu_ps(p); }
  STRETTO_SPE_INLINE void store(float* p, Vector x) { _mm256_storeu_ps(p, x); }
  STRETTO_SPE_INLINE Vector fma(Vector a, Vector b, Vector c) { return _mm256_fmadd_ps(a, b, c); }
};

struct F64 {
  using Scalar = double;
  using Vector = __m256d;
  static constexpr int width = 4;
  STRETTO_SPE_INLINE Vector set1(double x) { return _mm256_set1_pd(x); }
  STRETTO_SPE_INLINE Vector load(const double* p) { return _mm256_loadu_pd(p); }
  STRETTO_SPE_INLINE void store(double* p, Vector x) { _mm256_storeu_pd(p, x); }
  STRETTO_SPE_INLINE Vector fma(Vector a, Vector b, Vector c) { return _mm256_fmadd_pd(a, b, c); }
};

}  // namespace

template <>
const SpeKernels<float>& spe_avx2() {
  return SpeLoops<F32, 2>::kernels;
}
template <>
const SpeKernels<double>& spe_avx2() {
  return SpeLoops<F64, 2>::kernels;
}

}  // namespace stretto
#endif
