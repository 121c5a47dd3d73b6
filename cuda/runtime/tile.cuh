// Tiles of bf16 in shared memory for products on tensor cores: their layout, their copies, and how
// a product with rows of relative positions is sheared in registers.
// A strip holds the terms of relative position `low` + c in column c. In a tile of 16 queries, row
// g needs the columns from 15 − g on, and row g + 8 those from 7 − g on, one tile earlier. The
// shear takes one shuffle per register, as all rows of a quad of lanes move by the same distance.
#pragma once

#include "core/dtype.h"
#include "cuda/runtime/common.cuh"
#include "cuda/runtime/ptx.cuh"

namespace stretto::cuda::tile {

/// Rows of D elements; the 16-byte chunks of a row are swizzled by the row, so that the eight rows
/// of an 8 × 8 matrix are in eight groups of banks. An area starts at a multiple of 256 bytes.
template <int D>
struct Rows {
  static constexpr int pitch = 2 * D, chunks = D / 8;
  __device__ static uint32_t swizzle(int row) { return chunks >= 8 ? row & 7 : (row >> 1) & 3; }
  __device__ static uint32_t at(int row, int chunk) {
    return row * pitch + ((chunk ^ swizzle(row)) << 4);
  }
  /// The byte offset that a lane adds for 16 rows × 16 columns (xor x << 5 for columns 16 x …) of a
  /// left operand or, with load_trans, of a right one.
  __device__ static uint32_t as_rows(int lane) { return at(lane % 16, lane / 16); }
  /// The same for a right operand whose columns are the rows.
  __device__ static uint32_t as_columns(int lane) { return at(column_row(lane), lane / 8 % 2); }
  __device__ static int column_row(int lane) { return lane % 8 + lane / 16 * 8; }
};

/// `Count` rows of D elements in shared memory, part after part. `address` is that of the area, or
/// of the place in it that a lane reads. In a ring, row r is at place r mod Count, a power of two.
template <int D, int Count, int Parts>
struct Area {
  static constexpr int columns = D, count = Count, parts = Parts;
  static constexpr int pitch = Rows<D>::pitch, part = Count * pitch, bytes = Parts * part;
  uint32_t address;

  __device__ Area operator+(uint32_t offset) const { return {address + offset}; }
};

/// Returns x, hidden from the optimizer: values derived from it are recomputed at each use instead
/// of occupying registers throughout a loop.
__device__ inline int opaque(int x) {
  asm volatile("" : "+r"(x));
  return x;
}

/// Rows of `chunks` · 8 elements in global memory, 16-byte aligned. An f32 element is the sum of
/// three bf16 values, its parts, which are `part` elements apart.
struct Source {
  const BFloat16* data;
  int64_t row, part;
  int chunks;
};

/// Begins to copy rows first … first + Count − 1 to rows `to` … of an area, wrapping around at its
/// end, part after part. Rows outside 0 … limit − 1 become zeros.
template <int Threads, int Count, class A>
__device__ inline void load_rows(A area, const Source& from, int first, int limit, int to = 0) {
  constexpr int chunks = A::columns / 8, each = Threads / chunks, times = (Count + each - 1) / each,
                unrolled = times <= 4 ? times : 1;
  static_assert(each % 8 == 0 && (A::count & (A::count - 1)) == 0);
  const int x = threadIdx.x % chunks;
  int r = threadIdx.x / chunks;
  const uint32_t rows = x < from.chunks ? limit : 0;
  const uint32_t chunk = (x ^ Rows<A::columns>::swizzle(to + r)) << 4;
  const BFloat16* data = from.data + (int64_t(first + r) * from.row + x * 8);
#pragma unroll unrolled
  for (int i = 0; i < times; ++i) {
    if (Count % each == 0 || r < Count) {
      const uint32_t place = area.address + ((to + r) & (A::count - 1)) * A::pitch + chunk;
      const bool in_range = uint32_t(first + r) < rows;
#pragma unroll
      for (int part = 0; part < A::parts; ++part)
        ptx::copy16(place + part * A::part, data + part * from.part, in_range);
    }
    r += each;
    data += each * from.row;
  }
}

/// As load_rows(), for one f32 per row.
template <int Threads, int Count, int Area = Count>
__device__ inline void load_line(uint32_t area, const float* from, int first, int limit,
                                 int to = 0) {
  static_assert((Area & (Area - 1)) == 0);
#pragma unroll 1
  for (int c = threadIdx.x; c < Count; c += Threads)
    ptx::copy4(area + 4 * ((to + c) & (Area - 1)), from + (first + c),
               uint32_t(first + c) < uint32_t(limit));
}
constexpr int ring_of(int rows) {
  return rows <= 64 ? 64 : rows <= 128 ? 128 : rows <= 256 ? 256 : 512;
}

__device__ inline float lane_of(float x, int lane) { return __shfl_sync(0xffffffffu, x, lane); }

/// Four 8 × 8 matrices per part.
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

/// d += left · matrices 2y and 2y + 1 of right. With three parts: the six products that are not
/// below f32's precision, in the order of the left operand's parts or, if Swapped, of the right
/// one's; with the operands swapped too, sums are bit-identical.
template <int Parts, bool Swapped = false>
__device__ inline void multiply(float (&d)[4], const Fragment<Parts>& left,
                                const Fragment<Parts>& right, int y) {
#pragma unroll
  for (int i = Parts - 1; i >= 0; --i)
#pragma unroll
    for (int j = Parts - 1 - i; j >= 0; --j) {
      const int l = Swapped ? j : i, r = Swapped ? i : j;
      ptx::mma(d, left.r[l], right.r[r][2 * y], right.r[r][2 * y + 1]);
    }
}
/// As multiply(), for a sum of many products. In f32 each product starts from zero and is added to
/// d: tensor cores truncate sums toward zero, which would accumulate.
template <int Parts>
__device__ inline void accumulate(float (&d)[4], const Fragment<Parts>& left,
                                  const Fragment<Parts>& right, int y) {
  if constexpr (Parts == 1) {
    multiply(d, left, right, y);
  } else {
    float sum[4] = {};
    multiply(sum, left, right, y);
#pragma unroll
    for (int e = 0; e < 4; ++e) d[e] += sum[e];
  }
}

/// Returns two values as bf16 and leaves the remainders in x and y.
__device__ inline uint32_t pack_pair(float& x, float& y) {
  const uint32_t pair = ptx::cvt_pack(x, y);
  x -= __uint_as_float(pair << 16);
  y -= __uint_as_float(pair & 0xffff0000u);
  return pair;
}
/// Packs two neighboring tiles of a product as a left operand.
template <int Parts>
__device__ inline void pack(Fragment<Parts>& a, const float (&x)[4], const float (&y)[4]) {
  float rest[8] = {x[0], x[1], x[2], x[3], y[0], y[1], y[2], y[3]};
#pragma unroll
  for (int i = 0; i < Parts; ++i)
#pragma unroll
    for (int r = 0; r < 4; ++r) a.r[i][r] = pack_pair(rest[2 * r], rest[2 * r + 1]);
}

struct Always {
  template <class... T>
  __device__ constexpr bool operator()(T...) const {
    return true;
  }
};

/// The steps of 16 columns that a product includes, and how many of them are unrolled: a loop
/// needs fewer registers.
struct Steps {
  int begin = 0, end = 1 << 10, unrolled = 1 << 10;
  bool swapped = false;  // as in multiply()
};

/// d += left · rightᵀ for 16 · Slabs rows of the left operand and 8 · Tiles rows of an area, to
/// which the lane has added as_columns(lane). left(slab, x): columns 16 x … of the left operand.
/// Computes tiles n and n + 1 of the slabs for which wanted(slab, n).
template <Steps Of = Steps{}, class A, int Slabs, int Tiles, class Left, class Wanted = Always>
__device__ inline void multiply_transposed(float (&d)[Slabs][Tiles][4], const Left& left, A right,
                                           const Wanted& wanted = {}) {
  constexpr int all = A::columns / 16, end = Of.end < all ? Of.end : all,
                unrolled = Of.unrolled < all ? Of.unrolled : all;
#pragma unroll unrolled
  for (int x = Of.begin; x < end; ++x) {
    Fragment<A::parts> l[Slabs];
#pragma unroll
    for (int sl = 0; sl < Slabs; ++sl) l[sl] = left(sl, x);
#pragma unroll
    for (int n = 0; n < Tiles; n += 2) {
      Fragment<A::parts> f;
      load(f, (right.address + n * 8 * A::pitch) ^ (x << 5), A::part);
#pragma unroll
      for (int sl = 0; sl < Slabs; ++sl) {
        if (!wanted(sl, n)) continue;
        multiply<A::parts, Of.swapped>(d[sl][n], l[sl], f, 0);
        multiply<A::parts, Of.swapped>(d[sl][n + 1], l[sl], f, 1);
      }
    }
  }
}
/// d += left · right for 16 · Slabs rows of 16 columns and 16 rows of an area, to which the lane
/// has added as_rows(lane), for the slabs for which wanted(slab).
template <class A, int Slabs, class Wanted = Always>
__device__ inline void multiply(float (&d)[Slabs][A::columns / 8][4],
                                const Fragment<A::parts> (&left)[Slabs], A right,
                                const Wanted& wanted = {}) {
#pragma unroll
  for (int n = 0; n < A::columns / 16; ++n) {
    Fragment<A::parts> f;
    load_trans(f, right.address ^ (n << 5), A::part);
#pragma unroll
    for (int sl = 0; sl < Slabs; ++sl) {
      if (!wanted(sl)) continue;
      accumulate(d[sl][2 * n], left[sl], f, 0);
      accumulate(d[sl][2 * n + 1], left[sl], f, 1);
    }
  }
}

/// As multiply(), with rows `row` … of a ring.
template <class Ring, int Slabs>
__device__ inline void multiply_ring(float (&d)[Slabs][Ring::columns / 8][4],
                                     const Fragment<Ring::parts> (&left)[Slabs], Ring ring,
                                     int row) {
  const int lane = threadIdx.x % 32;
  row += lane % 16;
  multiply(d, left,
           ring + (row & (Ring::count - 1)) * Ring::pitch +
               (((lane / 16) ^ Rows<Ring::columns>::swizzle(row)) << 4));
}

/// Transposes four registers of a quad of lanes: lane t then holds register t of lanes 0 … 3.
__device__ inline void transpose_quad(uint32_t (&r)[4], int t) {
#pragma unroll
  for (int by = 1; by <= 2; by *= 2) {
    const bool upper = t & by;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      if (i & by) continue;
      uint32_t &low = r[i], &high = r[i + by];
      const uint32_t got = __shfl_xor_sync(0xffffffffu, upper ? low : high, by);
      (upper ? low : high) = got;
    }
  }
}

/// Zeroes the elements whose bit is 0: bits 2r and 2r + 1 belong to the pair in register r.
template <int Parts>
__device__ inline void keep_pairs(Fragment<Parts>& a, uint32_t bits) {
#pragma unroll
  for (int r = 0; r < 4; ++r) {
    const uint32_t keep = (bits >> 2 * r & 1) * 0xffffu | (bits >> (2 * r + 1) & 1) * 0xffff0000u;
#pragma unroll
    for (int i = 0; i < Parts; ++i) a.r[i][r] &= keep;
  }
}

/// Converts strips to scores and back, for 16 queries × 8 keys. In a strip's tiles, neighboring
/// elements are exchanged in the rows that move by an odd distance.
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
  __device__ void exchange(float& x, float& y) const {
    const float first = odd ? y : x;
    y = odd ? x : y;
    x = first;
  }
  /// Scores of a tile of keys from three neighboring tiles of the strip; if Add, added to s.
  template <bool Add = false>
  __device__ void scores(float (&s)[4], const float (&w0)[4], const float (&w1)[4],
                         const float (&w2)[4]) const {
    const auto put = [](float& to, float x) { to = Add ? to + x : x; };
    put(s[0], lane_of(wrap0 ? w2[0] : w1[0], from0));
    put(s[1], lane_of(wrap1 ? w2[1] : w1[1], from1));
    put(s[2], lane_of(wrap0 ? w1[2] : w0[2], from0));
    put(s[3], lane_of(wrap1 ? w1[3] : w0[3], from1));
  }
};

/// Converts scores to strips, in bf16; holds what a tile of 16 queries carries to the next ones.
template <int Parts>
struct Back {
  uint32_t upper[Parts] = {};     // rows 0 … 7 of the last tile
  uint32_t pairs[Parts][2] = {};  // those of the tile before, and rows 8 … 15 of the last one

  /// Multiplies the carried elements of rows 0 … 7 or, if half is 1, 8 … 15 by a power of 2.
  __device__ void scale(int half, float by) {
    const auto times = [](uint32_t& pair, float low, float high) {
      pair = ptx::cvt_pack(__uint_as_float(pair << 16) * low,
                           __uint_as_float(pair & 0xffff0000u) * high);
    };
    const float low = half == 0 ? by : 1.f, high = half == 0 ? 1.f : by;
#pragma unroll
    for (int i = 0; i < Parts; ++i) {
      if (half == 0) times(upper[i], by, by);
      times(pairs[i][0], low, high);
      times(pairs[i][1], low, high);
    }
  }

  /// Computes two tiles of the strip from two tiles of scores; the strip's second tile begins where
  /// `next` does. All are left operands. Rows g and g + 8, which move alike, share a register.
  __device__ void strip(Fragment<Parts>& to, const Fragment<Parts>& next, const Shear& shear) {
    const uint32_t first = shear.odd ? 0x7632 : 0x5410, second = shear.odd ? 0x5410 : 0x7632;
#pragma unroll
    for (int i = 0; i < Parts; ++i)
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const uint32_t lower = next.r[i][2 * half + 1];
        const uint32_t z0 = __byte_perm(upper[i], lower, first),
                       z1 = __byte_perm(upper[i], lower, second);
        const uint32_t x = __shfl_sync(~0u, shear.over0 ? pairs[i][0] : z0, shear.back0),
                       y = __shfl_sync(~0u, shear.over1 ? pairs[i][1] : z1, shear.back1);
        to.r[i][2 * half] = __byte_perm(x, y, 0x5410);
        to.r[i][2 * half + 1] = __byte_perm(x, y, 0x7632);
        upper[i] = next.r[i][2 * half];
        pairs[i][0] = z0;
        pairs[i][1] = z1;
      }
  }
};

/// Computes Count tiles of the strips of slabs `from` …, for slab s from tile `place` + 2 s on: the
/// product of left(slab, x), columns 16 x … of the queries' rows, with rows `relative` … (relative
/// positions) of a ring. If `biased`, adds the relative positions' bias, which is in a ring too: in
/// bf16 sums begin with it, in f32 it is added last, so that products are not truncated at its last
/// bit. chunk: the offset of the lane's chunk in its row.
template <int Count, int Unrolled, class Ring, int Slabs, int Tiles, class Left>
__device__ inline void add_to_strip(float (&w)[Slabs][Tiles][4], int place, int from,
                                    const Left& left, Ring ring, uint32_t chunk, int relative,
                                    const float* bias, bool biased, const Shear& shear) {
  const int lane = threadIdx.x % 32;
  const auto each_tile = [&](bool with_bias, const auto& f) {
#pragma unroll
    for (int o = 0; o < Count; ++o) {
      float b0 = 0, b1 = 0;
      if (with_bias && biased) {
        b0 = bias[(relative + 8 * o + 2 * (lane % 4)) & (Ring::count - 1)];
        b1 = bias[(relative + 8 * o + 2 * (lane % 4) + 1) & (Ring::count - 1)];
      }
#pragma unroll
      for (int sl = 0; sl < Slabs; ++sl)
        if (sl >= from) f(w[sl][place + o + 2 * sl], b0, b1);
    }
  };
  each_tile(Ring::parts == 1, [](float(&d)[4], float b0, float b1) {
    d[0] = d[2] = b0;
    d[1] = d[3] = b1;
  });
#pragma unroll Unrolled
  for (int x = 0; x < Ring::columns / 16; ++x) {
    Fragment<Ring::parts> l[Slabs];
#pragma unroll
    for (int sl = 0; sl < Slabs; ++sl)
      if (sl >= from) l[sl] = left(sl, x);
#pragma unroll
    for (int o = 0; o < Count; o += 2) {
      Fragment<Ring::parts> f;
      const int row =
          (relative + 8 * o + Rows<Ring::columns>::column_row(lane)) & (Ring::count - 1);
      load(f, ring.address + row * Ring::pitch + (chunk ^ (x << 5)), Ring::part);
#pragma unroll
      for (int sl = 0; sl < Slabs; ++sl) {
        if (sl < from) continue;
        multiply(w[sl][place + o + 2 * sl], l[sl], f, 0);
        multiply(w[sl][place + o + 1 + 2 * sl], l[sl], f, 1);
      }
    }
  }
  each_tile(Ring::parts > 1, [&](float(&d)[4], float b0, float b1) {
    if constexpr (Ring::parts > 1) {
      d[0] += b0, d[2] += b0;
      d[1] += b1, d[3] += b1;
    }
    shear.exchange(d[0], d[1]);
    shear.exchange(d[2], d[3]);
  });
}

/// For transposed tiles, [16 Slabs + 16, 8]: moves column c up by `first` +
/// `step` · c rows (0 … 7).
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
  /// Eight rows (an octet) of the result, from octets j and j + 1 of the strip.
  template <int Tiles>
  __device__ void octet(float& d0, float& d1, const float (&w)[Tiles][4], int j) const {
    const int c0 = 2 * (j & 1), c1 = 2 * ((j + 1) & 1);
    const float(&w0)[4] = w[j / 2], (&w1)[4] = w[(j + 1) / 2];
    d0 = lane_of(next0 ? w1[c1] : w0[c0], from0);
    d1 = lane_of(next1 ? w1[c1 + 1] : w0[c0 + 1], from1);
  }
};

/// Options of transposed_strip().
struct StripSteps {
  int slabs, tiles;
  bool down;  // tiles 2 y and 2 y + 1 begin at octet tiles − 2 − 2 y of the rows, not 2 y
};

/// Calls use(value, slab, tile, element), tile by tile, for the products of rows `row` … of a ring
/// with 8 · tiles rows at `right`, to which the lane has added as_columns(lane), sheared so that 16
/// · slabs rows remain.
///
///        8 tiles columns: queries            column c of the result is
///      ┌───────────────┐                     column c of the strip, moved up
///      │ \             │ row                 by first + step · c rows
///      │  \   strip    │
///      │   \           │ 16 slabs + 16 rows of a tile, of which 16 slabs remain
///      └───────────────┘
///
/// Sums of octet o begin with first(o) or, in f32, end with it. also(x, f) lets the caller use
/// columns 16 x … of the tiles that are loaded: in f32 two at a time, else all.
template <StripSteps Of, class Ring, class Right, class First, class Also, class Use>
__device__ inline void transposed_strip(Ring ring, int row, Right right, const RowShear& shear,
                                        const First& first, const Also& also, const Use& use) {
  constexpr int Parts = Ring::parts, slabs = Of.slabs, steps = Ring::columns / 16;
  constexpr int group = Parts > 1 ? 2 : Of.tiles, octets = group + 2 * slabs;
  constexpr int unrolled = Parts > 1 ? 1 : steps;
  const int lane = threadIdx.x % 32;
  row += lane % 16;
  const uint32_t chunk = ((lane / 16) ^ Rows<Ring::columns>::swizzle(row)) << 4;
#pragma unroll
  for (int n0 = 0; n0 < Of.tiles; n0 += group) {
    const int octet0 = Of.down ? Of.tiles - n0 - group : n0;
    float w[group][slabs + 1][4];
    // Calls f(sums, element of the octet's first column, tile) for the tiles that octet o is in.
    const auto each_tile = [&](int o, const auto& f) {
#pragma unroll
      for (int n = 0; n < group; ++n) {
        const int at = o - (Of.down ? group - 2 - n / 2 * 2 : n / 2 * 2);
        if (at >= 0 && at < 2 * slabs + 2) f(w[n][at / 2], at % 2 * 2, n);
      }
    };
#pragma unroll
    for (int o = 0; o < octets; ++o) {
      const float x = Parts == 1 ? first(octet0 + o) : 0;
      each_tile(o, [&](float(&d)[4], int e, int) { d[e] = d[e + 1] = x; });
    }
#pragma unroll unrolled
    for (int x = 0; x < steps; ++x) {
      Fragment<Parts> f[group / 2];
#pragma unroll
      for (int y = 0; y < group / 2; ++y)
        load(f[y], (right.address + (n0 / 2 + y) * 16 * Right::pitch) ^ (x << 5), Right::part);
      also(x, f);
#pragma unroll
      for (int o = 0; o < octets; o += 2) {
        Fragment<Parts> left;
        load(left,
             ring.address + ((row + 8 * (octet0 + o)) & (Ring::count - 1)) * Ring::pitch +
                 (chunk ^ (x << 5)),
             Ring::part);
        each_tile(o, [&](float(&d)[4], int, int n) {
          multiply<Parts, (Parts > 1)>(d, left, f[n / 2], n % 2);
        });
      }
    }
    if constexpr (Parts > 1) {
#pragma unroll
      for (int o = 0; o < octets; ++o) {
        const float x = first(octet0 + o);
        each_tile(o, [&](float(&d)[4], int e, int) { d[e] += x, d[e + 1] += x; });
      }
    }
#pragma unroll
    for (int n = 0; n < group; ++n)
#pragma unroll
      for (int o = 0; o < 2 * slabs; ++o) {
        float d0, d1;
        shear.octet(d0, d1, w[n], Of.down ? o + 1 - n % 2 : o + n % 2);
        use(d0, o / 2, n0 + n, 2 * (o % 2));
        use(d1, o / 2, n0 + n, 2 * (o % 2) + 1);
      }
  }
}

}  // namespace stretto::cuda::tile
