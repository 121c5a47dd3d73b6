// Groups of elements that kernels with random numbers compute at a time: one Philox block of four
// elements, or two blocks for bf16.
#pragma once

#include "cuda/runtime/capture.h"
#include "cuda/runtime/common.cuh"

namespace stretto::cuda {

/// The number of elements that a thread computes at a time.
template <class T>
constexpr int at_once = sizeof(T) == 2 ? 8 : 4;

template <class T>
struct alignas(sizeof(T) * at_once<T> > 16 ? 16 : sizeof(T) * at_once<T>) Group {
  T v[at_once<T>];
};

/// The group that begins at element `first` of n; `packs` if all tensors are aligned to 16 bytes.
template <class T>
struct GroupAt {
  uint64_t first, n;
  bool packs;

  __device__ bool whole() const { return packs && first + at_once<T> <= n; }
  /// Elements past the end repeat the last one.
  __device__ Group<T> load(const T* from) const {
    if (whole()) return *reinterpret_cast<const Group<T>*>(from + first);
    Group<T> y;
#pragma unroll
    for (int j = 0; j < at_once<T>; ++j) y.v[j] = from[first + j < n ? first + j : n - 1];
    return y;
  }
  __device__ void store(T* to, const compute_t<T> (&values)[at_once<T>]) const {
    Group<T> y;
#pragma unroll
    for (int j = 0; j < at_once<T>; ++j) y.v[j] = cast<T>(values[j]);
    if (whole()) {
      *reinterpret_cast<Group<T>*>(to + first) = y;
    } else {
#pragma unroll
      for (int j = 0; j < at_once<T>; ++j)
        if (first + j < n) to[first + j] = y.v[j];
    }
  }
};

/// Dropout of one launch; `below` is 0 without it.
template <class C>
struct Drop {
  DrawKey key;
  uint32_t below;
  C scale;
};

/// y[j] = 0 or y[j] · scale for the elements of group `group`, by their random numbers.
template <class C, int V>
__device__ inline void drop_group(C (&y)[V], const Drop<C>& drop, uint64_t group) {
  if (drop.below == 0) return;
  const RandomKey key = key_now(drop.key);
#pragma unroll
  for (int b = 0; b < V; b += 4) {
    const Random4 r = philox(key, group * (V / 4) + b / 4);
#pragma unroll
    for (int j = 0; j < 4; ++j)
      y[b + j] = (r.v[j] >> 8) < drop.below ? C(0) : y[b + j] * drop.scale;
  }
}

}  // namespace stretto::cuda
