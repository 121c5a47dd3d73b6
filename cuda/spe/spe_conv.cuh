// Shared by the kernels of convSPE: spe_conv.cu, spe_conv_sums.cu.
//
// A tile has runs of 16 positions, each in one row of the plane. A lane has one of 32 realizations,
// and a warp a run. Their noise is in shared memory [columns, 32]; 16 sums and a window of 23 of
// its values in registers yield 128 products per 8 values read. Compiled without fused
// multiply-adds (cuda/runtime/unfused.h), as random numbers must be bit-identical to the CPU's; the
// fused ones here are explicit.
#pragma once

#include "cuda/runtime/capture.h"
#include "cuda/runtime/head_rows.cuh"
#include "cuda/spe/spe_conv.h"

namespace stretto::cuda::noise {

constexpr int threads = 256, warps = threads / 32, lanes = 32;
constexpr int run = 16, step = 8;
constexpr int ahead = 4;  // elements before the noise, where an address may begin

/// A launch, for both sides: queries and keys.
struct Problem {
  DrawKey key;
  int64_t apart, pitch, columns;
  int64_t row, column;  // of the first tile
  const float *w[2], *e;
  int heads, d, r, b;
  int lines, taps, padded;  // of a filter; its taps rounded up to a multiple of `step`
  int across;               // adjacent runs in a tile
  int tiles_across;         // adjacent tiles in a row
  int r_tiles;
  int64_t at[2];
  int n[2];
};

/// The row of a side's operand at a position, or −1.
__device__ inline int operand_row(const Problem& p, int side, int64_t row, int64_t column) {
  const int64_t l = row * p.columns + column - p.at[side];
  return column < p.columns && l >= 0 && l < p.n[side] ? int(l) : -1;
}

/// z [count, lanes] ← noise of `index` at (row, column …), of realizations from c0 on, zeros past
/// the last one. A thread generates four.
__device__ inline void draw(float* z, const Problem& p, RandomKey key, int64_t index, int64_t row,
                            int64_t column, int c0, int count) {
  const int64_t base = index * p.apart + row * p.pitch + column * p.r + c0;
  const int width = min(lanes, p.r - c0), log = p.r % 4 == 0 ? 3 : 4;
#pragma unroll 1
  for (int i = threadIdx.x; i < count << log; i += threads) {
    const int s = i >> log, part = i & ((1 << log) - 1);
    const int64_t begin = base + int64_t(s) * p.r;
    const int at = part * 4 - int(begin & 3);
    if (at >= lanes) continue;
    Pack<float, 4> y = {};
    if (at < width) {
      const Random4 bits = philox(key, uint64_t(begin + at) / 4);
      normals_from_bits(bits.v[0], bits.v[1], y.v[0], y.v[1]);
      normals_from_bits(bits.v[2], bits.v[3], y.v[2], y.v[3]);
    }
    float* const to = z + s * lanes + at;
    if (log == 3) {
      *reinterpret_cast<Pack<float, 4>*>(to) = y;
    } else {
#pragma unroll
      for (int j = 0; j < 4; ++j)
        if (unsigned(at + j) < unsigned(lanes)) to[j] = at + j < width ? y.v[j] : 0.0f;
    }
  }
}

/// sums_i += Σ_u f_u z_(i + u), u < count, a multiple of `step`. z: the lane's noise; factors(u, f)
/// reads `step` factors.
template <class Factors>
__device__ inline void correlate(float (&sums)[run], const float* z, int count, Factors factors) {
  float v[run + step - 1];
#pragma unroll
  for (int i = 0; i < run - 1; ++i) v[i] = z[i * lanes];
  z += (run - 1) * lanes;
#pragma unroll 1
  for (int u = 0; u < count; u += step, z += step * lanes) {
    float f[step];
    factors(u, f);
#pragma unroll
    for (int j = 0; j < step; ++j) v[run - 1 + j] = z[j * lanes];
#pragma unroll
    for (int j = 0; j < step; ++j)
#pragma unroll
      for (int i = 0; i < run; ++i) sums[i] = fmaf(f[j], v[i + j], sums[i]);
#pragma unroll
    for (int i = 0; i < run - 1; ++i) v[i] = v[i + step];
  }
}

template <class S>
struct Sides {
  HeadRows<S> of[2];
};
/// The tensors that `pick` returns for both sides; undefined ones are never accessed.
template <class S, class Pick>
Sides<S> sides_of(const NoiseSide (&sides)[2], int pack, Pick pick) {
  Sides<S> all = {};
  for (int i = 0; i < 2; ++i)
    if (const Tensor& x = pick(sides[i], i); x.defined()) all.of[i] = head_rows<S>(x, pack);
  return all;
}

/// A launch and the number of its tiles, of `runs` runs each, some above each other if `stacked`.
struct Plan {
  Problem p;
  int64_t tiles;
};
Plan plan_of(const NoiseCode& code, const NoiseSide (&sides)[2], int runs, bool stacked);

}  // namespace stretto::cuda::noise
