// AVX2: tiles of 6 × 16 (f32) and 6 × 8 (f64); 12 of the 16 registers hold sums.
#include "core/gemm/kernels.h"

#if defined(__x86_64__)
#include "core/simd/avx2.h"
// Must follow the vectors.
#include "core/gemm/tile.h"

namespace stretto::kernels {

template <>
const Gemm<float>& gemm_avx2() {
  return GemmTiles<simd::F32, 6, 2>::kernels;
}
template <>
const Gemm<double>& gemm_avx2() {
  return GemmTiles<simd::F64, 6, 2>::kernels;
}

}  // namespace stretto::kernels
#endif
