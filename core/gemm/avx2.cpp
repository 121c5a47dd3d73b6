// The matrix-product kernels with AVX2. A tile has 6 rows and 16 (f32) or 8 (f64) columns; its sums
// are in 12 of the 16 registers.
#include "core/gemm/kernels.h"

#if defined(__x86_64__)
#include "core/simd/avx2.h"
// Include after the header that defines the vector types.
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
