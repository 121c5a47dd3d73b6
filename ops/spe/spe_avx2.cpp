// The kernels of spe_kernels.h with AVX2 vectors (32 bytes).
#include "ops/spe/spe_kernels.h"

#if defined(__x86_64__)
#include "core/simd/avx2.h"
// Include after the header that defines the vector types.
#include "ops/spe/spe_tile.h"

namespace stretto {

template <>
const SpeKernels<float>& spe_avx2() {
  return SpeLoops<simd::F32, 2>::kernels;
}
template <>
const SpeKernels<double>& spe_avx2() {
  return SpeLoops<simd::F64, 2>::kernels;
}

}  // namespace stretto
#endif
