// Vectors of 16 bytes, which the compiler makes of what any processor has; a product is rounded
// before it is added. And the choice between the instruction sets.
#include <cstring>

#include "core/cpu.h"
#include "ops/spe/spe_tile.h"

namespace stretto {
namespace {

template <class T>
struct Portable {
  using Scalar = T;
  typedef T Vector __attribute__((vector_size(16)));
  static constexpr int width = 16 / sizeof(T);
  STRETTO_SPE_INLINE Vector set1(T x) { return x - Vector{}; }
  STRETTO_SPE_INLINE Vector load(const T* p) {
    Vector x;
    std::memcpy(&x, p, sizeof x);
    return x;
  }
  STRETTO_SPE_INLINE void store(T* p, Vector x) { std::memcpy(p, &x, sizeof x); }
  STRETTO_SPE_INLINE Vector fma(Vector a, Vector b, Vector c) { return a * b + c; }
};

template <class T>
const SpeKernels<T>& kernels() {
#if defined(__x86_64__)
  if (vector_isa() == Isa::avx512) return spe_avx512<T>();
  if (vector_isa() == Isa::avx2) return spe_avx2<T>();
#endif
  return spe_portable<T>();
}

}  // namespace

template <>
const SpeKernels<float>& spe_portable() {
  return SpeLoops<Portable<float>, 2>::kernels;
}
template <>
const SpeKernels<double>& spe_portable() {
  return SpeLoops<Portable<double>, 2>::kernels;
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
