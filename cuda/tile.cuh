// Tiles of bf16 in shared memory for products on tensor cores: how rows lie there, how they come,
// and how a product with rows of relative positions is sheared in registers.
//
// A strip holds in column c what relative position `low` + c says; row g of a tile of queries needs
// of it the columns from 7 − g on (15 − g, the lower half one tile further). Moving them takes one
// shuffle a register, as all rows of a quad of lanes move by as much.
#pragma once

#include "core/dtype.h"
#include "cuda/common.cuh"
#include "cuda/ptx.cuh"

namespace stretto::cuda::tile {

/// Rows of D numbers; 16-byte chunks of a row are swizzled by the row, so that the eight rows of an
/// 8 × 8 matrix lie in eight groups of banks. An area starts at a multiple of 256.
template <int D>
struct Rows {
  static constexpr int pitch = 2 * D, chunks = D / 8;
  __device__ static uint32_t swizzle(int row) { return chunks >= 8 ? row & 7 : (row >> 1) & 3; }
  __device__ static uint32_t at(int row, int chunk) {
    return row * pitch + ((chunk ^ swizzle(row)) << 4);
  }
  /// What a lane adds for eight rows and four chunks (xor x << 6 for the next four) ...
  __device__ static uint32_t eight(int lane) { return at(lane % 8, lane / 8); }
  /// ... and for sixteen rows and two chunks (xor x << 5 for the next two).
  __device__ static uint32_t sixteen(int lane) { return at(lane % 16, lane / 16); }
};

/// Rows in global memory, of which `chunks` · 8 numbers are there; 16-byte aligned. Numbers of f32
/// are three of bf16, which add up to them and lie `part` apart.
struct Source {
  const BFloat16* data;
  int64_t row, part;
  int chunks;
};

/// Begins to copy rows first … first + rows − 1 to the area, part after part; those not in 0 …
/// limit − 1 are zeros.
template <int D, int Threads, int Parts = 1>
__device__ inline void load_rows(uint32_t area, const Source& from, int first, int rows,
                                 int limit) {
  constexpr int chunks = D / 8;
#pragma unroll 1
  for (int c = threadIdx.x; c < rows * chunks; c += Threads) {
    const int r = c / chunks, x = c % chunks, row = first + r;
    const bool there = row >= 0 && row < limit && x < from.chunks;
    const BFloat16* const data = from.data + (there ? row * from.row + x * 8 : 0);
#pragma unroll
    for (int i = 0; i < Parts; ++i)
      ptx::copy16(area + i * rows * Rows<D>::pitch + Rows<D>::at(r, x), data + i * from.part,
                  there);
  }
}

/// The same into a ring: row r lies at r mod Ring and is row r + offset of the source.
template <int D, int Ring, int Threads, int Parts = 1>
__device__ inline void load_ring(uint32_t area, const Source& from, int first, int rows, int offset,
                                 int limit) {
  constexpr int chunks = D / 8;
#pragma unroll 1
  for (int c = threadIdx.x; c < rows * chunks; c += Threads) {
    const int r = first + c / chunks, x = c % chunks, row = r + offset;
    const bool there = row >= 0 && row < limit && x < from.chunks;
    const BFloat16* const data = from.data + (there ? row * from.row + x * 8 : 0);
#pragma unroll
    for (int i = 0; i < Parts; ++i)
      ptx::copy16(area + i * Ring * Rows<D>::pitch + Rows<D>::at(r & (Ring - 1), x),
                  data + i * from.part, there);
  }
}

/// The same with numbers: `count` of them from `first` on, those beyond `limit` as zeros.
template <int Threads>
__device__ inline void load_line(uint32_t area, const float* from, int first, int count,
                                 int limit) {
#pragma unroll 1
  for (int c = threadIdx.x; c < count; c += Threads) {
    const bool there = first + c >= 0 && first + c < limit;
    ptx::copy4(area + 4 * c, from + (there ? first + c : 0), there);
  }
}
template <int Ring, int Threads>
__device__ inline void load_line_ring(uint32_t area, const float* from, int first, int count,
                                      int offset, int limit) {
#pragma unroll 1
  for (int c = threadIdx.x; c < count; c += Threads) {
    const int at = first + c + offset;
    const bool there = at >= 0 && at < limit;
    ptx::copy4(area + 4 * ((first + c) & (Ring - 1)), from + (there ? at : 0), there);
  }
}
constexpr int ring_of(int rows) {
  return rows <= 64 ? 64 : rows <= 128 ? 128 : rows <= 256 ? 256 : 512;
}

__device__ inline float lane_of(float x, int lane) { return __shfl_sync(0xffffffffu, x, lane); }

/// Four 8 × 8 matrices of each part.
template <int Parts>
struct Fragment {
  uint32_t r[Parts][4];
};
template <int Parts>
__device__ inline void load(Fragment<Parts>& f, uint32_t at, int part) {
#pragma unroll
  for (int i = 0; i < Parts; ++i) ptx::ldmatrix(f.r[i], at + i * part);
}
template <int Parts>
__device__ inline void load_trans(Fragment<Parts>& f, uint32_t at, int part) {
#pragma unroll
  for (int i = 0; i < Parts; ++i) ptx::ldmatrix_trans(f.r[i], at + i * part);
}

/// d += left · matrices 2y and 2y + 1 of right. Of three parts the six products that f32 shows.
template <int Parts>
__device__ inline void multiply(float (&d)[4], const Fragment<Parts>& left,
                                const Fragment<Parts>& right, int y) {
#pragma unroll
  for (int i = Parts - 1; i >= 0; --i)
#pragma unroll
    for (int j = Parts - 1 - i; j >= 0; --j)
      ptx::mma(d, left.r[i], right.r[j][2 * y], right.r[j][2 * y + 1]);
}

/// Two numbers as bf16; what that leaves of them.
__device__ inline uint32_t pack_pair(float& x, float& y) {
  const uint32_t pair = ptx::cvt_pack(x, y);
  x -= __uint_as_float(pair << 16);
  y -= __uint_as_float(pair & 0xffff0000u);
  return pair;
}
/// The left operand of a product from two neighbouring tiles of one.
template <int Parts>
__device__ inline void pack(Fragment<Parts>& a, const float (&x)[4], const float (&y)[4]) {
  float rest[8] = {x[0], x[1], x[2], x[3], y[0], y[1], y[2], y[3]};
#pragma unroll
  for (int i = 0; i < Parts; ++i)
#pragma unroll
    for (int r = 0; r < 4; ++r) a.r[i][r] = pack_pair(rest[2 * r], rest[2 * r + 1]);
}

/// Zeroes those of its numbers whose bit is not set: two in each register, then the next.
template <int Parts>
__device__ inline void keep_pairs(Fragment<Parts>& a, uint32_t bits) {
#pragma unroll
  for (int r = 0; r < 4; ++r) {
    const uint32_t keep = (bits >> 2 * r & 1) * 0xffffu | (bits >> (2 * r + 1) & 1) * 0xffff0000u;
#pragma unroll
    for (int i = 0; i < Parts; ++i) a.r[i][r] &= keep;
  }
}

/// From strips to scores and back, for 16 queries × 8 keys.
struct Shear {
  int from0, from1, back0, back1;
  bool odd, wrap0, wrap1, over0, over1;

  __device__ explicit Shear(int lane) {
    const int t = lane % 4, ahead = 7 - lane / 4, pairs = ahead >> 1, quad = lane & ~3;
    odd = ahead & 1;
    from0 = quad | ((t + pairs) & 3);
    from1 = quad | ((t + pairs + odd) & 3);
    wrap0 = t < pairs;
    wrap1 = t < pairs + odd;
    back0 = quad | ((t - pairs - odd) & 3);
    back1 = quad | ((t - pairs) & 3);
    over0 = t + pairs + odd >= 4;
    over1 = t + pairs >= 4;
  }
  /// Scores of a tile of keys from three neighbouring tiles of the strip.
  __device__ void scores(float (&s)[4], const float (&w0)[4], const float (&w1)[4],
                         const float (&w2)[4]) const {
    const float a0 = odd ? (wrap0 ? w2[1] : w1[1]) : (wrap0 ? w2[0] : w1[0]);
    const float a1 = odd ? (wrap1 ? w2[0] : w1[0]) : (wrap1 ? w2[1] : w1[1]);
    const float b0 = odd ? (wrap0 ? w1[3] : w0[3]) : (wrap0 ? w1[2] : w0[2]);
    const float b1 = odd ? (wrap1 ? w1[2] : w0[2]) : (wrap1 ? w1[3] : w0[3]);
    s[0] = lane_of(a0, from0);
    s[1] = lane_of(a1, from1);
    s[2] = lane_of(b0, from0);
    s[3] = lane_of(b1, from1);
  }
  /// A tile of the strip from three neighbouring tiles of keys, the last at its own place.
  __device__ void strip(float (&w)[4], const float (&d0)[4], const float (&d1)[4],
                        const float (&d2)[4]) const {
    const float a0 = odd ? (over0 ? d0[1] : d1[1]) : (over0 ? d0[0] : d1[0]);
    const float a1 = odd ? (over1 ? d0[0] : d1[0]) : (over1 ? d0[1] : d1[1]);
    const float b0 = odd ? (over0 ? d1[3] : d2[3]) : (over0 ? d1[2] : d2[2]);
    const float b1 = odd ? (over1 ? d1[2] : d2[2]) : (over1 ? d1[3] : d2[3]);
    w[0] = lane_of(a0, back0);
    w[1] = lane_of(a1, back1);
    w[2] = lane_of(b0, back0);
    w[3] = lane_of(b1, back1);
  }
};

/// The same for tiles turned over, [16 Slabs + 16, 8]: column c moves up by `first` + `step` · c
/// rows, 0 … 7.
struct RowShear {
  int from0, from1;
  bool next0, next1;

  __device__ RowShear(int lane, int first, int step) {
    const int g = lane / 4, t = lane % 4, up0 = first + step * 2 * t, up1 = up0 + step;
    from0 = ((g + up0) & 7) * 4 + t;
    from1 = ((g + up1) & 7) * 4 + t;
    next0 = g < up0;
    next1 = g < up1;
  }
  /// Octet o of the result from octets o + skip and o + skip + 1 of the strip.
  template <int Tiles>
  __device__ void octet(float& d0, float& d1, const float (&w)[Tiles][4], int j) const {
    const int c0 = 2 * (j & 1), c1 = 2 * ((j + 1) & 1);
    const float(&w0)[4] = w[j / 2], (&w1)[4] = w[(j + 1) / 2];
    d0 = lane_of(next0 ? w1[c1] : w0[c0], from0);
    d1 = lane_of(next1 ? w1[c1 + 1] : w0[c0 + 1], from1);
  }
};

}  // namespace stretto::cuda::tile
