// The matrix-product kernels with NEON. A tile has 5 rows and 16 (f32) or 8 (f64) columns; its sums
// are in 20 of the 32 registers. With 6 rows g++ 12 spills some of them.
#include "core/gemm/kernels.h"

#if defined(__aarch64__)
#include "core/simd/neon.h"
// Include after the header that defines the vector types.
#include "core/gemm/tile.h"

namespace stretto::kernels {

template <>
const Gemm<float>& gemm_neon() {
  return GemmTiles<simd::F32, 5, 4>::kernels;
}
template <>
const Gemm<double>& gemm_neon() {
  return GemmTiles<simd::F64, 5, 4>::kernels;
}

}  // namespace stretto::kernels
#endif
