// AVX-512: tiles of 14 × 32 (f32) and 14 × 16 (f64); 28 of the 32 registers hold sums.
#include "core/gemm/kernels.h"

#if defined(__x86_64__)
#include "core/simd/avx512.h"
// Must follow the vectors.
#include "core/gemm/tile.h"

namespace stretto::kernels {

template <>
const Gemm<float>& gemm_avx512() {
  return GemmTiles<simd::F32, 14, 2>::kernels;
}
template <>
const Gemm<double>& gemm_avx512() {
  return GemmTiles<simd::F64, 14, 2>::kernels;
}

}  // namespace stretto::kernels
#endif
