// Dropout of the weights in fused attention: the random numbers of a tile, which forward and backward
// regenerate from the index of each weight.
#pragma once

#include "cuda/attention/attention.cuh"

namespace stretto::cuda {

/// True if dropout keeps weight `index`.
__device__ inline bool kept(const RandomKey& key, uint64_t index, uint32_t below) {
  const Random4 x = philox(key, index >> 2);
  const int i = int(index & 3);
  const uint32_t low = i & 1 ? x.v[1] : x.v[0], high = i & 1 ? x.v[3] : x.v[2];
  return ((i & 2 ? high : low) >> 8) >= below;
}

/// Sets bit 4 n + e of a slab if dropout keeps weight e of tile n, in the layout of each_score().
template <int Tiles, bool Transposed, int Slope = 0, int Slabs>
__device__ inline void draw_kept(uint32_t (&bits)[Slabs], const AttentionArgs& a, int unit, int i,
                                 int j) {
  const RandomKey key = key_now(a.dropout.key);
  const int64_t line = int64_t(unit) * a.sizes.m;
  const int lane = threadIdx.x % 32;
#pragma unroll
  for (int sl = 0; sl < Slabs; ++sl) {
    bits[sl] = 0;
#pragma unroll 1
    for (int x = 0; x < 4 * Tiles; ++x) {
      const int r = 16 * sl + lane / 4 + 8 * (x >> 1 & 1),
                c = 8 * (x >> 2) + 2 * (lane % 4) + (x & 1);
      const int query = i + (Transposed ? c : r), k = j + (Transposed ? r + Slope * c : c);
      const uint64_t index = uint64_t(line + query) * uint64_t(a.sizes.n) + uint64_t(k);
      bits[sl] |= uint32_t(kept(key, index, a.dropout.below)) << x;
    }
  }
}

}  // namespace stretto::cuda
