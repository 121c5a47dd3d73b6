// NEON: the portable vectors of 16 bytes, with fused multiply-adds.
#pragma once

#if defined(__aarch64__)
#include <arm_neon.h>

#include "portable.h"

namespace stretto::simd {
namespace {

struct F32 : Portable<float> {
  using Portable::load;
  STRETTO_SIMD_INLINE Vector load(const BFloat16* p) {
    return (Vector)vshll_n_u16(vld1_u16(reinterpret_cast<const uint16_t*>(p)), 16);
  }
  STRETTO_SIMD_INLINE Vector load(const BFloat16* p, int64_t n) { return load_first<F32>(p, n); }
  STRETTO_SIMD_INLINE Vector fma(Vector a, Vector b, Vector c) { return vfmaq_f32(c, a, b); }
  // to[i] = the sum of the elements of v[i], for 16 vectors.
  STRETTO_SIMD_INLINE void add_up(const Vector* v, float* to) {
#pragma GCC unroll 4
    for (int i = 0; i < 16; i += 4)
      store(to + i, vpaddq_f32(vpaddq_f32(v[i], v[i + 1]), vpaddq_f32(v[i + 2], v[i + 3])));
  }
};

struct F64 : Portable<double> {
  STRETTO_SIMD_INLINE Vector fma(Vector a, Vector b, Vector c) { return vfmaq_f64(c, a, b); }
};

}  // namespace
}  // namespace stretto::simd
#endif
