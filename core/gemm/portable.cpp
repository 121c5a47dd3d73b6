// Portable: tiles of 4 × 8 (f32) and 4 × 4 (f64).
#include "core/simd/portable.h"
// Must follow the vectors.
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
