// The kernels of spe_kernels.h with AVX-512 vectors (64 bytes).
#include "ops/spe/spe_kernels.h"

#if defined(__x86_64__)
#include "core/simd/avx512.h"
// Include after the header that defines the vector types.
#include "ops/spe/spe_tile.h"

namespace stretto {
namespace {

struct F32 : simd::F32 {
  // to[i] = the sum of the elements of v[i], for 16 vectors. Transposes and adds in rounds, each of
  // which halves the number of vectors. The masked intrinsics avoid false compiler warnings about
  // undefined values in the intrinsics without masks.
  STRETTO_SIMD_INLINE void add_up(const Vector* v, float* to) {
    constexpr __mmask16 all16 = 0xffff;
    constexpr __mmask8 all8 = 0xff;
    Vector two[8], four[4], eight[2];
#pragma GCC unroll 8
    for (int i = 0; i < 8; ++i)
      two[i] = _mm512_maskz_unpacklo_ps(all16, v[2 * i], v[2 * i + 1]) +
               _mm512_maskz_unpackhi_ps(all16, v[2 * i], v[2 * i + 1]);
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) {
      const auto a = (__m512d)two[2 * i], b = (__m512d)two[2 * i + 1];
      four[i] = (__m512)_mm512_maskz_unpacklo_pd(all8, a, b) +
                (__m512)_mm512_maskz_unpackhi_pd(all8, a, b);
    }
#pragma GCC unroll 2
    for (int i = 0; i < 2; ++i)
      eight[i] = _mm512_maskz_shuffle_f32x4(all16, four[2 * i], four[2 * i + 1], 0x88) +
                 _mm512_maskz_shuffle_f32x4(all16, four[2 * i], four[2 * i + 1], 0xdd);
    store(to, _mm512_maskz_shuffle_f32x4(all16, eight[0], eight[1], 0x88) +
                  _mm512_maskz_shuffle_f32x4(all16, eight[0], eight[1], 0xdd));
  }
};

}  // namespace

template <>
const SpeKernels<float>& spe_avx512() {
  return SpeLoops<F32, 4>::kernels;
}
template <>
const SpeKernels<double>& spe_avx512() {
  return SpeLoops<simd::F64, 4>::kernels;
}

}  // namespace stretto
#endif
