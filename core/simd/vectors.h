// The common part of the vectors of all instruction sets. A source that computes with vectors
// includes portable.h, neon.h, avx2.h or avx512.h first. That header defines STRETTO_SIMD_TARGET, the
// target attribute that lets the compiler use the instructions in one function. No file is compiled
// for an instruction set as a whole: inline functions of the standard library, which the linker
// shares between files, would then contain these instructions.
//
// A vector type V has Scalar, Vector, width, set1, load and store (also of the first n elements,
// with zeros for the others) and fma; vectors of float also load from bf16.
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>

#include "../dtype.h"

#ifndef STRETTO_SIMD_TARGET
#define STRETTO_SIMD_TARGET
#endif
#define STRETTO_SIMD_INLINE STRETTO_SIMD_TARGET __attribute__((always_inline)) static inline

namespace stretto::simd {
namespace {

// Loads the first n elements, with zeros for the others.
template <class V>
STRETTO_SIMD_INLINE typename V::Vector load_first(const BFloat16* p, int64_t n) {
  BFloat16 all[V::width] = {};
  for (int64_t i = 0; i < std::min<int64_t>(n, V::width); ++i) all[i] = p[i];
  return V::load(all);
}

// One round of transpose_rows(): interleaves the first half of the rows with the second half.
template <class V, int... j>
STRETTO_SIMD_INLINE void interleave(const typename V::Vector* from, typename V::Vector* to,
                                    std::integer_sequence<int, j...>) {
  constexpr int w = V::width;
#pragma GCC unroll 8
  for (int i = 0; i < w / 2; ++i) {
    to[2 * i] = __builtin_shufflevector(from[i], from[i + w / 2], (j / 2 + j % 2 * w)...);
    to[2 * i + 1] =
        __builtin_shufflevector(from[i], from[i + w / 2], (w / 2 + j / 2 + j % 2 * w)...);
  }
}
// Transposes width × width elements: rows[i][j] becomes rows[j][i]. For a V without transpose().
template <class V>
STRETTO_SIMD_INLINE void transpose_rows(typename V::Vector* rows) {
  typename V::Vector other[V::width];
  int rounds = 0;
#pragma GCC unroll 4
  for (int w = V::width; w > 1; w /= 2, ++rounds)
    interleave<V>(rounds % 2 ? other : rows, rounds % 2 ? rows : other,
                  std::make_integer_sequence<int, V::width>());
  if (rounds % 2)
#pragma GCC unroll 16
    for (int i = 0; i < V::width; ++i) rows[i] = other[i];
}

}  // namespace
}  // namespace stretto::simd
