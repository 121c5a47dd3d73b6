// The matrix-product kernels with AVX-512. A tile has 14 rows and 32 (f32) or 16 (f64) columns; its
// sums are in 28 of the 32 registers.
#include "core/gemm/kernels.h"

#if defined(__x86_64__)
#include "core/simd/avx512.h"
// Include after the header that defines the vector types.
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
