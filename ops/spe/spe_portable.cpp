// The kernels of spe_kernels.h for any CPU (vectors of 16 bytes), and the choice between
// the instruction sets.
#include "core/cpu.h"
#include "core/simd/portable.h"
// Include after the header that defines the vector types.
#include "ops/spe/spe_tile.h"

namespace stretto {
namespace {

template <class T>
const SpeKernels<T>& kernels() {
#if defined(__x86_64__)
  if (vector_isa() == Isa::avx512) return spe_avx512<T>();
  if (vector_isa() == Isa::avx2) return spe_avx2<T>();
#elif defined(__aarch64__)
  if (vector_isa() == Isa::neon) return spe_neon<T>();
#endif
  return spe_portable<T>();
}

}  // namespace

template <>
const SpeKernels<float>& spe_portable() {
  return SpeLoops<simd::Portable<float>, 2>::kernels;
}
template <>
const SpeKernels<double>& spe_portable() {
  return SpeLoops<simd::Portable<double>, 2>::kernels;
}
template <>
const SpeKernels<float>& spe_kernels() {
  return kernels<float>();
}
template <>
const SpeKernels<double>& spe_kernels() {
  return kernels<double>();
}

}  // namespace stretto
