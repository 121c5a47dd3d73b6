// The matrix-product kernels for any CPU. A tile has 4 rows and 8 (f32) or 4 (f64) columns.
#include "core/simd/portable.h"
// Include after the header that defines the vector types.
#include "core/gemm/tile.h"

namespace stretto::kernels {

template <>
const Gemm<float>& gemm_portable() {
  return GemmTiles<simd::Portable<float>, 4, 2>::kernels;
}
template <>
const Gemm<double>& gemm_portable() {
  return GemmTiles<simd::Portable<double>, 4, 2>::kernels;
}

}  // namespace stretto::kernels
