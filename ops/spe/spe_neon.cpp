// The kernels of spe_kernels.h with NEON vectors (16 bytes).
#include "ops/spe/spe_kernels.h"

#if defined(__aarch64__)
#include "core/simd/neon.h"
// Include after the header that defines the vector types.
#include "ops/spe/spe_tile.h"

namespace stretto {

template <>
const SpeKernels<float>& spe_neon() {
  return SpeLoops<simd::F32, 4>::kernels;
}
template <>
const SpeKernels<double>& spe_neon() {
  return SpeLoops<simd::F64, 4>::kernels;
}

}  // namespace stretto
#endif
