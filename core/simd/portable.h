// Vectors of 16 bytes for any processor, with the compiler's vector extensions. fma() rounds the
// product before the addition.
#pragma once

#include <cstring>

#define STRETTO_SIMD_TARGET
#include "vectors.h"

namespace stretto::simd {
namespace {

template <class T>
struct Portable {
  using Scalar = T;
  typedef T Vector __attribute__((vector_size(16)));
  static constexpr int width = 16 / sizeof(T);
  STRETTO_SIMD_INLINE Vector set1(T x) { return x - Vector{}; }
  STRETTO_SIMD_INLINE Vector load(const T* p) {
    Vector x;
    std::memcpy(&x, p, sizeof x);
    return x;
  }
  STRETTO_SIMD_INLINE Vector load(const BFloat16* p) { return load(p, width); }
  STRETTO_SIMD_INLINE Vector load(const BFloat16* p, int64_t n) {
    Vector x = set1(T(0));
    for (int i = 0; i < width && i < n; ++i) x[i] = T(float(p[i]));
    return x;
  }
  STRETTO_SIMD_INLINE Vector load(const T* p, int64_t n) {
    if (n >= width) return load(p);
    Vector x = set1(T(0));
#pragma GCC unroll 4
    for (int i = 0; i < width; ++i)
      if (i < n) x[i] = p[i];
    return x;
  }
  STRETTO_SIMD_INLINE void store(T* p, Vector x) { std::memcpy(p, &x, sizeof x); }
  STRETTO_SIMD_INLINE void store(T* p, Vector x, int64_t n) {
    if (n >= width) return store(p, x);
#pragma GCC unroll 4
    for (int i = 0; i < width; ++i)
      if (i < n) p[i] = x[i];
  }
  STRETTO_SIMD_INLINE Vector fma(Vector a, Vector b, Vector c) { return a * b + c; }
};

}  // namespace
}  // namespace stretto::simd
