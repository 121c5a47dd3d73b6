// Dropout of the weights in fused attention: the random numbers of a tile, which forward and
// backward regenerate from the index of each weight, (line + query) · N + key.
//
// Four weights with consecutive indices (a group) share a call of philox(). The lanes that hold
// weights of the same queries divide the groups among them, then exchange the results, a bit per
// weight. A run of consecutive weights may begin within a group; then it needs one group more.
#pragma once

#include "cuda/attention/attention.cuh"

namespace stretto::cuda {

/// Which of a lane's weights dropout keeps, in the layout of each_score(): bit 4 n + e of a slab
/// for weight e of tile n.
template <int Slabs, int Tiles>
struct KeptWeights {
  static constexpr int bits = 4 * Tiles;  // of a slab
  uint32_t words[(Slabs * bits + 31) / 32] = {};

  __device__ void add(int slab, uint32_t of_slab) {
    words[slab * bits / 32] |= of_slab << slab * bits % 32;
  }
  /// The bits of a slab from tile `n` on.
  __device__ uint32_t from(int slab, int n) const {
    return words[slab * bits / 32] >> (slab * bits % 32 + 4 * n);
  }
  __device__ bool has(int slab, int n, int e) const { return from(slab, n) >> e & 1; }
};

/// The random numbers of a layer's weights.
struct WeightDraws {
  RandomKey key;
  uint32_t below;

  __device__ explicit WeightDraws(const AttentionArgs& a)
      : key(key_now(a.dropout.key)), below(a.dropout.below) {}
  /// Bit e is set if dropout keeps weight 4 · group + e.
  __device__ uint32_t operator()(int64_t group) const {
    const Random4 x = philox(key, uint64_t(group));
    uint32_t bits = 0;
#pragma unroll
    for (int e = 0; e < 4; ++e) bits |= uint32_t((x.v[e] >> 8) >= below) << e;
    return bits;
  }
};

/// Finds the weights that dropout keeps; rows are queries from i on, columns are keys from j on, a
/// multiple of 4.
///
/// Lane t of the four that share a query computes groups t, t + 4 … of it; the last groups, one per
/// row, are distributed over the four.
template <int Slabs, int Tiles>
__device__ inline void draw_rows(KeptWeights<Slabs, Tiles>& kept, const AttentionArgs& a, int unit,
                                 int i, int j) {
  static_assert(Tiles % 2 == 0 && Tiles <= 8 && Slabs <= 2);
  constexpr uint32_t low_bits = 0x01010101 & ~0u >> (32 - 4 * Tiles);
  const WeightDraws draws(a);
  const int lane = tile::opaque(threadIdx.x) % 32, t = lane % 4, n = a.sizes.n;
  const int64_t first = (int64_t(unit) * a.sizes.m + i + lane / 4) * n + j, group = first >> 2;
  const int offset = int(first & 3);  // in the first group, in all of the lane's rows
  // Group `at` of the row that is 8 · eight rows below the lane's first.
  const auto draw = [&](int eight, int at) { return draws(group + int64_t(2 * eight) * n + at); };
  uint32_t last = 0;
  if (n % 4 != 0) {
    if (t < 2 * Slabs) last = draw(t, 2 * Tiles) << 4 * t;
    last |= __shfl_xor_sync(~0u, last, 1);
    last |= __shfl_xor_sync(~0u, last, 2);
  }
#pragma unroll
  for (int sl = 0; sl < Slabs; ++sl) {
    uint32_t own = 0;  // byte y: group t + 4 y of the first and of the second row
#pragma unroll 1
    for (int x = 0; x < Tiles; ++x) own |= draw(2 * sl + x % 2, t + x / 2 * 4) << 4 * x;
#pragma unroll
    for (int c = 0; c < 2; ++c) {
      const int at = 2 * t + c + offset;
#pragma unroll
      for (int odd = 0; odd < 2; ++odd) {  // tiles 2 y + odd
        const int of = at / 4 + 2 * odd;
        uint32_t from = __shfl_sync(~0u, own, (lane & ~3) | (of & 3));
        if (of > 3) from = from >> 8 | (last >> 8 * sl & 0xff) << (4 * Tiles - 8);
        from >>= at & 3;
        kept.add(sl, ((from & low_bits) | (from >> 2 & low_bits << 2)) << (4 * odd + c));
      }
    }
  }
}

/// Finds the weights that dropout keeps; rows are keys from j on, columns are queries from i on. The
/// keys of column c begin Slope · c later.
///
/// The eight lanes with columns 2 t and 2 t + 1 of each tile divide the groups of these columns. With
/// two slabs a lane has one group of each column, with one slab one of every second column. The
/// last groups, one per column, are distributed over the eight.
template <int Slope, int Slabs, int Tiles>
__device__ inline void draw_columns(KeptWeights<Slabs, Tiles>& kept, const AttentionArgs& a,
                                    int unit, int i, int j) {
  static_assert(Tiles <= 4 && Slabs <= 2);
  constexpr uint32_t low_bits = 0x1111 & ~0u >> (32 - 4 * Tiles);
  const WeightDraws draws(a);
  const int lane = tile::opaque(threadIdx.x) % 32, t = lane % 4, g = lane / 4, n = a.sizes.n;
  const int64_t line = int64_t(tile::opaque(unit)) * a.sizes.m + i;
  const auto first = [&](int c) { return (line + c) * n + j + Slope * c; };
  const auto draw = [&](int c, int at) { return draws((first(c) >> 2) + at); };
  // The results of column 8 x + 2 t + p are bits 4 · (p · Tiles + x) …; in `own` of one slab 4 x ….
  uint32_t last = 0;
  const bool whole = Slope == 0 && n % 4 == 0;  // no run begins within a group
  if (!whole) {
    if (g < 2 * Tiles) last = draw(8 * (g % Tiles) + 2 * t + g / Tiles, 4 * Slabs) << 4 * g;
#pragma unroll
    for (int by = 4; by <= 16; by *= 2) last |= __shfl_xor_sync(~0u, last, by);
  }
  uint32_t own = 0;
#pragma unroll 1
  for (int x = 0; x < Slabs * Tiles; ++x) {
    const int p = Slabs == 2 ? x / Tiles : g / 4;
    own |= draw(8 * (x % Tiles) + 2 * t + p, g % (4 * Slabs)) << 4 * x;
  }
#pragma unroll
  for (int p = 0; p < 2; ++p) {
    const int offset =
        int(uint32_t(line + 2 * t + p) * uint32_t(n) + uint32_t(j + Slope * (2 * t + p))) & 3;
#pragma unroll
    for (int eight = 0; eight < 2 * Slabs; ++eight) {
      const int at = 8 * eight + g + offset, of = at / 4, by = Slabs == 2 ? 0 : 4 * p;
      uint32_t from =
          __shfl_sync(~0u, own, 4 * ((of + by) & 7) + t) >> (Slabs == 2 ? 4 * Tiles * p : 0);
      if (of == 4 * Slabs) from = last >> 4 * Tiles * p;
      kept.add(eight / 2, (from >> (at & 3) & low_bits) << (2 * (eight % 2) + p));
    }
  }
}

}  // namespace stretto::cuda
