// Operands and results of products on tensor cores, in bf16 and f32: how they are distributed over
// the lanes of a warp, loads, products and stores.
//
// Lane l = 4 g + t has elements 2 t and 2 t + 1 of row g of each 8 × 8 matrix (e = 0, 1):
//
//             columns 0 1    2 3    4 5    6 7
//     row 0         l = 0      1      2      3
//     row 1             4      5      6      7
//     …
//     row 7            28     29     30     31
//
// An operand is a block of 16 × 16 elements, four such matrices. Products sum over its columns: the
// rows of a right operand are the product's columns. The order of bf16 registers is mma's:
//
//      left operand    columns 0-7   8-15        right operand    columns 0-7   8-15
//                     +-----------+------+                       +-----------+------+
//         rows 0-7    |   r[0]    | r[2] |  h = 0    rows 0-7    |   r[0]    | r[1] |  h = 0
//                     +-----------+------+                       +-----------+------+
//         rows 8-15   |   r[1]    | r[3] |  h = 1    rows 8-15   |   r[2]    | r[3] |  h = 1
//                     +-----------+------+                       +-----------+------+
//                         j = 0    j = 1                             j = 0    j = 1
//
//      product d, 16 rows × 8 columns: d[0], d[1] are of row g, d[2], d[3] of row g + 8
//
// Two neighboring products, d[j][2 h + e], have the layout of a left operand, and become one
// without a shuffle: pack(). A block of 16 rows × 16 columns in shared memory becomes
//
//                                        load()                 load_trans()
//      at the lane's offset as_rows()    a left operand         a right operand, transposed
//                           as_columns() a right operand        a left operand, transposed
//
// Precision. A bf16 element is an operand without conversion. An f32 element is split, with f32
// sums, in one of two ways:
//   Fragment<3>    three bf16 values, its parts, and six products: f32's precision. Rows are split
//                  once, in global memory (fused attention, whose rows are loaded many times).
//   SplitFragment  two tf32 values and three products: a relative error of 2^-21 each. Elements are
//                  split when they are loaded (linear attention and random features).
// Sums that become bf16 operands are rounded (Fragment<1>) or split in two (Fragment<2>: a relative
// error of 2^-17).
#pragma once

#include "cuda/runtime/shared_rows.cuh"

namespace stretto::cuda::tile {

/// Returns two values as bf16 and leaves the remainders in x and y.
__device__ inline uint32_t pack_pair(float& x, float& y) {
  const uint32_t pair = ptx::cvt_pack(x, y);
  x -= __uint_as_float(pair << 16);
  y -= __uint_as_float(pair & 0xffff0000u);
  return pair;
}

/// An operand in bf16, the sum of its parts.
template <int Parts>
struct Fragment {
  uint32_t r[Parts][4];

  /// The lane's two elements of matrix (h, j) of a left operand.
  __device__ float2 values(int h, int j) const {
    static_assert(Parts == 1);
    const uint32_t x = r[0][h + 2 * j];
    return {__uint_as_float(x << 16), __uint_as_float(x & 0xffff0000u)};
  }
  __device__ void set(int h, int j, float2 x) {
#pragma unroll
    for (int i = 0; i < Parts; ++i) r[i][h + 2 * j] = pack_pair(x.x, x.y);
  }
};

/// An operand in f32, the sum of two tf32 values. Products in tf32 have their columns in another
/// order, the same one for both operands.
struct SplitFragment {
  float2 high[2][2], low[2][2];  // [h][j]

  __device__ float2 values(int h, int j) const {
    const float2 &x = high[h][j], &y = low[h][j];
    return {x.x + y.x, x.y + y.y};
  }
  __device__ void set(int h, int j, float2 x) {
    const float2 rounded = {__uint_as_float(ptx::cvt_tf32(x.x)),
                            __uint_as_float(ptx::cvt_tf32(x.y))};
    high[h][j] = rounded, low[h][j] = {x.x - rounded.x, x.y - rounded.y};
  }
};

/// An operand of a product of elements T: bf16 as it is, f32 as the sum of two tf32 values.
template <class T>
using FragmentOf = std::conditional_t<sizeof(T) == 2, Fragment<1>, SplitFragment>;
/// The same for numbers computed in f32: in a bf16 product, each is the sum of two bf16 values.
template <class T>
using WideFragmentOf = std::conditional_t<sizeof(T) == 2, Fragment<2>, SplitFragment>;

/// Packs two neighboring products as a left operand.
template <int Parts>
__device__ inline void pack(Fragment<Parts>& f, const float (&x)[4], const float (&y)[4]) {
  float rest[8] = {x[0], x[1], x[2], x[3], y[0], y[1], y[2], y[3]};
#pragma unroll
  for (int i = 0; i < Parts; ++i)
#pragma unroll
    for (int r = 0; r < 4; ++r) f.r[i][r] = pack_pair(rest[2 * r], rest[2 * r + 1]);
}
__device__ inline void pack(SplitFragment& f, const float (&x)[4], const float (&y)[4]) {
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    f.set(h, 0, {x[2 * h], x[2 * h + 1]});
    f.set(h, 1, {y[2 * h], y[2 * h + 1]});
  }
}
template <class F>
__device__ inline F packed(const float (&d)[2][4]) {
  F f;
  pack(f, d[0], d[1]);
  return f;
}

/// Zeroes the elements whose bit is 0: bits 2r and 2r + 1 belong to the pair in register r.
template <int Parts>
__device__ inline void keep_pairs(Fragment<Parts>& f, uint32_t bits) {
#pragma unroll
  for (int r = 0; r < 4; ++r) {
    const uint32_t keep = (bits >> 2 * r & 1) * 0xffffu | (bits >> (2 * r + 1) & 1) * 0xffff0000u;
#pragma unroll
    for (int i = 0; i < Parts; ++i) f.r[i][r] &= keep;
  }
}

// Loads: the table above. `part`: the bytes from a part to the next.

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

/// The side of a product that an operand is on, which decides the order of bf16 registers.
enum class Side { left, right };

/// The address that a lane passes to load() or load_trans() for a block of a tile.
template <bool AsRows, class Tile>
__device__ inline uint32_t block_address(const Tile& tile, int row, int column) {
  using Rows = typename Tile::Rows;
  const int lane = lane_index(), r = AsRows ? lane % 16 : Rows::column_row(lane),
            c = AsRows ? lane / 16 : lane / 8 % 2;
  return tile.area().address + row * Rows::pitch +
         (Rows::at(r, c) ^ tile.opaque_if_wide(column) * 2);
}
/// An operand: its rows are rows `row` … of a tile, its columns are the tile's columns `column` ….
template <Side S, int Width, int Count>
__device__ inline Fragment<1> rows_of(const Tile<BFloat16, Width, Count>& tile, int row,
                                      int column) {
  Fragment<1> f;
  load(f, block_address<S == Side::left>(tile, row, column), 0);
  return f;
}
/// An operand: its rows are columns `column` … of a tile, its columns are the tile's rows `row` ….
template <Side S, int Width, int Count>
__device__ inline Fragment<1> columns_of(const Tile<BFloat16, Width, Count>& tile, int row,
                                         int column) {
  Fragment<1> f;
  load_trans(f, block_address<S == Side::right>(tile, row, column), 0);
  return f;
}

template <Side, int Width, int Count>
__device__ inline SplitFragment rows_of(const Tile<float, Width, Count>& tile, int row,
                                        int column) {
  using Rows = tile::Rows<float, Width>;
  SplitFragment f;
  const int lane = lane_index(),
            at = Rows::place(lane / 4, lane % 4 * 2) ^ tile.opaque_if_wide(column) * 4;
#pragma unroll
  for (int h = 0; h < 2; ++h)
#pragma unroll
    for (int j = 0; j < 2; ++j)
      f.set(h, j,
            *reinterpret_cast<const float2*>(tile.data + (row + 8 * h) * Rows::pitch +
                                             (at ^ 8 * j * 4)));
  return f;
}
template <Side, int Width, int Count>
__device__ inline SplitFragment columns_of(const Tile<float, Width, Count>& tile, int row,
                                           int column) {
  using Rows = tile::Rows<float, Width>;
  SplitFragment f;
  const int lane = lane_index(), to = tile.opaque_if_wide(column) * 4,
            first = Rows::place(lane % 4 * 2, lane / 4) ^ to,
            second = Rows::place(lane % 4 * 2 + 1, lane / 4) ^ to;
#pragma unroll
  for (int h = 0; h < 2; ++h)
#pragma unroll
    for (int j = 0; j < 2; ++j) {
      const char* const from = tile.data + (row + 8 * j) * Rows::pitch;
      f.set(h, j,
            {*reinterpret_cast<const float*>(from + (first ^ 8 * h * 4)),
             *reinterpret_cast<const float*>(from + (second ^ 8 * h * 4))});
    }
  return f;
}

// Products.

/// Calls f(l, r) for the parts of two operands whose products are not below the precision of the
/// operand with more parts, from the smallest products on.
template <int L, int R, class F>
__device__ inline void each_product(const F& f) {
  constexpr int most = L > R ? L : R;
#pragma unroll
  for (int l = L - 1; l >= 0; --l)
#pragma unroll
    for (int r = R - 1 < most - 1 - l ? R - 1 : most - 1 - l; r >= 0; --r) f(l, r);
}
/// d += left · columns 8 n … of rightᵀ. Swapped: in the order of the right operand's parts; with
/// the operands swapped too, sums are bit-identical.
template <bool Swapped = false, int L, int R>
__device__ inline void multiply(float (&d)[4], const Fragment<L>& left, const Fragment<R>& right,
                                int n) {
  each_product<L, R>([&](int i, int j) {
    const int l = Swapped ? j : i, r = Swapped ? i : j;
    ptx::mma(d, left.r[l], right.r[r][2 * n], right.r[r][2 * n + 1]);
  });
}
/// d += left · rightᵀ
template <int L, int R>
__device__ inline void multiply(float (&d)[2][4], const Fragment<L>& left,
                                const Fragment<R>& right) {
  each_product<L, R>([&](int l, int r) {
#pragma unroll
    for (int n = 0; n < 2; ++n) ptx::mma(d[n], left.r[l], right.r[r][2 * n], right.r[r][2 * n + 1]);
  });
}
/// As multiply(), for a sum of many products. In f32 each product starts from zero and is added to
/// d: tensor cores truncate sums toward zero, which would accumulate.
template <int Parts>
__device__ inline void accumulate(float (&d)[4], const Fragment<Parts>& left,
                                  const Fragment<Parts>& right, int n) {
  if constexpr (Parts == 1) {
    multiply(d, left, right, n);
  } else {
    float sum[4] = {};
    multiply(sum, left, right, n);
#pragma unroll
    for (int e = 0; e < 4; ++e) d[e] += sum[e];
  }
}
/// d += left · rightᵀ in f32, with sums of products that start from zero as in accumulate().
__device__ inline void multiply(float (&d)[2][4], const SplitFragment& left,
                                const SplitFragment& right) {
  const auto bits = [](float x) { return __float_as_uint(x); };
#pragma unroll
  for (int n = 0; n < 2; ++n) {
    float sum[4] = {};
    const auto add = [&](const float2(&x)[2][2], const float2(&y)[2][2], int j) {
      const uint32_t a[4] = {bits(x[0][j].x), bits(x[1][j].x), bits(x[0][j].y), bits(x[1][j].y)};
      ptx::mma_tf32(sum, a, bits(y[n][j].x), bits(y[n][j].y));
    };
#pragma unroll
    for (int j = 0; j < 2; ++j) {
      add(left.low, right.high, j);
      add(left.high, right.low, j);
    }
#pragma unroll
    for (int j = 0; j < 2; ++j) add(left.high, right.high, j);
#pragma unroll
    for (int e = 0; e < 4; ++e) d[n][e] += sum[e];
  }
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
/// which the lane has added as_columns(). left(slab, x): columns 16 x … of the left operand. Computes
/// tiles n and n + 1 of the slabs for which wanted(slab, n), in the first `steps` steps.
template <Steps Of = Steps{}, class A, int Slabs, int Tiles, class Left, class Wanted = Always>
__device__ inline void multiply_transposed(float (&d)[Slabs][Tiles][4], const Left& left, A right,
                                           const Wanted& wanted = {}, int steps = A::columns / 16) {
  constexpr int all = A::columns / 16, end = Of.end < all ? Of.end : all,
                unrolled = Of.unrolled < all ? Of.unrolled : all;
  constexpr bool loop = unrolled == 1;
#pragma unroll unrolled
  for (int x = Of.begin; x < (loop && steps < end ? steps : end); ++x) {
    if (!loop && x >= steps) continue;
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
        multiply<Of.swapped>(d[sl][n], l[sl], f, 0);
        multiply<Of.swapped>(d[sl][n + 1], l[sl], f, 1);
      }
    }
  }
}
/// d += left · right for 16 · Slabs rows of 16 columns and 16 rows of an area, to which the lane
/// has added as_rows(), for the slabs for which wanted(slab), in the first `steps` steps of 16
/// columns of the area.
template <class A, int Slabs, class Wanted = Always>
__device__ inline void multiply(float (&d)[Slabs][A::columns / 8][4],
                                const Fragment<A::parts> (&left)[Slabs], A right,
                                const Wanted& wanted = {}, int steps = A::columns / 16) {
#pragma unroll
  for (int n = 0; n < A::columns / 16; ++n) {
    if (n >= steps) continue;  // a break would prevent unrolling
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

// Shuffles, most of them among the four lanes that share a row of a product, a quad.

__device__ inline float lane_of(float x, int lane) { return __shfl_sync(0xffffffffu, x, lane); }
__device__ inline float quad_sum(float x) {
  x += __shfl_xor_sync(0xffffffffu, x, 1);
  return x + __shfl_xor_sync(0xffffffffu, x, 2);
}
__device__ inline float quad_max(float x) {
  x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, 1));
  return fmaxf(x, __shfl_xor_sync(0xffffffffu, x, 2));
}
/// A lane and its neighbor (lane ^ distance) have two words each. Afterwards the lower lane has
/// both first words, the upper lane both second words.
__device__ inline void exchange(uint32_t& first, uint32_t& second, int distance, int lane) {
  const bool upper = lane & distance;
  const uint32_t got = __shfl_xor_sync(0xffffffffu, upper ? first : second, distance);
  (upper ? first : second) = got;
}
/// Transposes four registers of a quad: lane t then has register t of lanes 0 … 3.
__device__ inline void transpose_quad(uint32_t (&r)[4], int t) {
#pragma unroll
  for (int by = 1; by <= 2; by *= 2)
#pragma unroll
    for (int i = 0; i < 4; ++i)
      if (!(i & by)) exchange(r[i], r[i + by], by, t);
}

// Stores.

/// Calls f(h, j, address of the lane's two elements) for the matrices of a block of a tile.
template <class T, int Width, int Count, int Parts, class F>
__device__ inline void each_pair(const Tile<T, Width, Count, Parts>& tile, int row, int column,
                                 const F& f) {
  const int lane = sizeof(T) == 4 ? tile.opaque_if_wide(lane_index()) : lane_index();
#pragma unroll
  for (int h = 0; h < 2; ++h)
#pragma unroll
    for (int j = 0; j < 2; ++j)
      f(h, j, tile.at(row + lane / 4 + 8 * h, column + 8 * j + lane % 4 * 2));
}
/// Stores a block of sums to a tile. In bf16, a tile of two parts keeps more of their precision.
template <int Width, int Count, int Parts>
__device__ inline void store_block(const Tile<BFloat16, Width, Count, Parts>& tile, int row,
                                   int column, const float (&d)[2][4]) {
  const auto f = packed<Fragment<Parts>>(d);
  each_pair(tile, row, column, [&](int h, int j, char* at) {
#pragma unroll
    for (int i = 0; i < Parts; ++i)
      *reinterpret_cast<uint32_t*>(at + i * tile.part) = f.r[i][h + 2 * j];
  });
}
template <int Width, int Count>
__device__ inline void store_block(const Tile<float, Width, Count>& tile, int row, int column,
                                   const float (&d)[2][4]) {
  each_pair(tile, row, column, [&](int h, int j, char* at) {
    *reinterpret_cast<float2*>(at) = {d[j][2 * h], d[j][2 * h + 1]};
  });
}
/// Adds a block of sums to one of a tile.
template <int Width, int Count>
__device__ inline void add_to_block(const Tile<float, Width, Count>& tile, int row, int column,
                                    const float (&d)[2][4]) {
  each_pair(tile, row, column, [&](int h, int j, char* at) {
    float2& to = *reinterpret_cast<float2*>(at);
    const float2 x = to;
    to = {x.x + d[j][2 * h], x.y + d[j][2 * h + 1]};
  });
}
/// d += a block of a tile.
template <int Width, int Count>
__device__ inline void add_block(float (&d)[2][4], const Tile<float, Width, Count>& tile, int row,
                                 int column) {
  each_pair(tile, row, column, [&](int h, int j, const char* at) {
    const float2 x = *reinterpret_cast<const float2*>(at);
    d[j][2 * h] += x.x, d[j][2 * h + 1] += x.y;
  });
}

/// Stores 16 × 32 sums, rows g and g + 8 multiplied by `by`, to columns `column` … of two rows in
/// memory, 16 bytes at a time. Skips a null row and columns from `width` on. All lanes take part.
__device__ inline void store_sums(BFloat16* const (&rows)[2], const float (&d)[2][2][4],
                                  const float (&by)[2], int column, int width) {
  const int t = lane_index() % 4, at = column + t * 8;
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    uint32_t w[4];
#pragma unroll
    for (int n = 0; n < 4; ++n)
      w[n] = ptx::cvt_pack(d[n / 2][n % 2][2 * h] * by[h], d[n / 2][n % 2][2 * h + 1] * by[h]);
    transpose_quad(w, t);
    if (rows[h] && at < width) *reinterpret_cast<uint4*>(rows[h] + at) = {w[0], w[1], w[2], w[3]};
  }
}
__device__ inline void store_sums(float* const (&rows)[2], const float (&d)[2][2][4],
                                  const float (&by)[2], int column, int width) {
  const int t = lane_index() % 4;
#pragma unroll
  for (int h = 0; h < 2; ++h)
#pragma unroll
    for (int block = 0; block < 2; ++block) {
      uint32_t w[2][2];
#pragma unroll
      for (int e = 0; e < 2; ++e) {
#pragma unroll
        for (int n = 0; n < 2; ++n) w[n][e] = __float_as_uint(d[block][n][2 * h + e] * by[h]);
        exchange(w[0][e], w[1][e], 1, t);
      }
      const int at = column + block * 16 + t % 2 * 8 + t / 2 * 4;
      if (rows[h] && at < width)
        *reinterpret_cast<uint4*>(rows[h] + at) = {w[0][0], w[0][1], w[1][0], w[1][1]};
    }
}

}  // namespace stretto::cuda::tile
