// Products of 16 × 16 blocks on tensor cores, with the same functions for bf16 and f32. Operands
// come from tiles in shared memory, optionally transposed, or from sums in registers. Sums are f32.
//
// A bf16 element is an operand without conversion. An f32 element is split into the sum of two tf32
// values, and three products replace one: relative error 2^-21 each. Sums that become operands
// again are rounded to bf16 (Left) or split into two bf16 values (Wide: relative error 2^-17); in
// f32 both are exact as above.
//
//     sums d[j][2h + e] of lane l = 4 r + c:        j = 0              j = 1
//                                             +----------------+----------------+
//                                     h = 0   | row r,         | row r,         |
//                                             | columns 2c + e | columns 8 + 2c + e
//                                     h = 1   | row r + 8      | row r + 8      |
//                                             +----------------+----------------+
//
// A left operand's elements are distributed over the lanes in the same way, so that sums become
// operands without a shuffle. For f32 this needs a permutation of the columns in tf32 products, the
// same one for both operands.
#pragma once

#include "cuda/runtime/common.cuh"
#include "cuda/runtime/ptx.cuh"

namespace stretto::cuda {

__device__ inline int lane_index() { return int(threadIdx.x % 32); }

/// Rows of Width elements in shared memory; Width is a multiple of 64. Chunks of 16 bytes are
/// swizzled within a row, so that blocks are read and sums are written without bank conflicts,
/// along rows as well as along columns.
template <class T, int Width>
struct Tile {
  static constexpr int pitch = Width * int(sizeof(T)), pieces = pitch / 16, V = pack_size<T>;
  char* data;

  __device__ static int swizzle(int row) {
    if constexpr (sizeof(T) == 2)
      return row & 7;
    else
      return (row & 2) | ((row ^ row >> 2) & 1) << 2;
  }
  /// The byte offset of the element at (row, column).
  __device__ static int place(int row, int column) {
    return row * pitch + ((column / V ^ swizzle(row)) << 4) + column % V * int(sizeof(T));
  }
  __device__ char* at(int row, int column) const { return data + place(row, column); }
};

/// Returns x, hidden from the optimizer in wide tiles: values derived from it are then computed
/// at each use. Otherwise they would be computed before a loop for all of its iterations and
/// need too many registers.
template <class T, int Width>
__device__ inline int opaque(const Tile<T, Width>&, int x) {
  if constexpr (Width * sizeof(T) > 128) asm volatile("" : "+r"(x));
  return x;
}
/// A left operand, 16 × 16.
template <class T>
struct Left;
template <>
struct Left<BFloat16> {
  uint32_t r[4];
  __device__ float2 values(int h, int j) const {
    const uint32_t x = r[h + 2 * j];
    return {__uint_as_float(x << 16), __uint_as_float(x & 0xffff0000u)};
  }
  __device__ void set(int h, int j, float2 x) { r[h + 2 * j] = ptx::cvt_pack(x.x, x.y); }
};
/// x rounded to tf32.
__device__ inline float tf32(float x) { return __uint_as_float(ptx::cvt_tf32(x)); }

template <>
struct Left<float> {
  float high[2][4], low[2][4];  // [j]; in mma's order: (h, e) = (0, 0), (1, 0), (0, 1), (1, 1)
  __device__ float2 values(int h, int j) const {
    return {high[j][h] + low[j][h], high[j][h + 2] + low[j][h + 2]};
  }
  __device__ void set(int h, int j, float2 x) {
    high[j][h] = tf32(x.x), low[j][h] = x.x - high[j][h];
    high[j][h + 2] = tf32(x.y), low[j][h + 2] = x.y - high[j][h + 2];
  }
};

/// A left operand made of sums that keeps more precision than Left: in bf16,
/// two values per element.
template <class T>
struct Wide : Left<T> {};
template <>
struct Wide<BFloat16> {
  Left<BFloat16> high, low;
  __device__ void set(int h, int j, float2 x) {
    high.set(h, j, x);
    const float2 y = high.values(h, j);
    low.set(h, j, {x.x - y.x, x.y - y.y});
  }
  __device__ float2 values(int h, int j) const {
    const float2 x = high.values(h, j), y = low.values(h, j);
    return {x.x + y.x, x.y + y.y};
  }
};

/// A right operand, 16 (summed over) × 16.
template <class T>
struct Right;
template <>
struct Right<BFloat16> {
  uint32_t r[4];  // columns 0-7: r[0], r[1]; columns 8-15: r[2], r[3]
};
template <>
struct Right<float> {
  float high[2][2][2], low[2][2][2];  // [n][j][e]
  __device__ void set(int n, int j, int e, float x) {
    high[n][j][e] = tf32(x), low[n][j][e] = x - high[n][j][e];
  }
};

/// d += a · b
__device__ inline void multiply(float (&d)[2][4], const Left<BFloat16>& a,
                                const Right<BFloat16>& b) {
  ptx::mma(d[0], a.r, b.r[0], b.r[1]);
  ptx::mma(d[1], a.r, b.r[2], b.r[3]);
}
__device__ inline void multiply(float (&d)[2][4], const Wide<BFloat16>& a,
                                const Right<BFloat16>& b) {
  multiply(d, a.low, b);
  multiply(d, a.high, b);
}
__device__ inline void multiply(float (&d)[2][4], const Left<float>& a, const Right<float>& b) {
  auto product = [](float(&sum)[4], const float(&x)[4], const float(&y)[2]) {
    const uint32_t bits[4] = {__float_as_uint(x[0]), __float_as_uint(x[1]), __float_as_uint(x[2]),
                              __float_as_uint(x[3])};
    ptx::mma_tf32(sum, bits, __float_as_uint(y[0]), __float_as_uint(y[1]));
  };
#pragma unroll
  for (int n = 0; n < 2; ++n) {
    float sum[4] = {};  // tensor cores truncate sums toward zero, which would accumulate
#pragma unroll
    for (int j = 0; j < 2; ++j) {
      product(sum, a.low[j], b.high[n][j]);
      product(sum, a.high[j], b.low[n][j]);
    }
#pragma unroll
    for (int j = 0; j < 2; ++j) product(sum, a.high[j], b.high[n][j]);
#pragma unroll
    for (int e = 0; e < 4; ++e) d[n][e] += sum[e];
  }
}

/// The address this lane passes to ldmatrix for the 16 × 16 block at (row, column), multiples of
/// 16, of a tile. The order of ldmatrix's four 8 × 8 matrices is down the rows first (`rows_first`)
/// or along the columns first.
template <int Width>
__device__ inline uint32_t block_address(const Tile<BFloat16, Width>& tile, int row, int column,
                                         bool rows_first) {
  const int lane = lane_index(), r = rows_first ? lane % 16 : lane % 8 + lane / 16 * 8,
            c = rows_first ? lane / 16 : lane / 8 % 2;
  using Rows = Tile<BFloat16, Width>;
  return ptx::shared_address(tile.data) + row * Rows::pitch +
         (Rows::place(r, c * 8) ^ opaque(tile, column) * 2);
}
/// The operand's rows are rows `row` … of the tile; the product sums over its columns `column` ….
template <int Width>
__device__ inline Left<BFloat16> left(const Tile<BFloat16, Width>& tile, int row, int column) {
  Left<BFloat16> a;
  ptx::ldmatrix(a.r, block_address(tile, row, column, true));
  return a;
}
/// The operand's rows are columns of the tile.
template <int Width>
__device__ inline Left<BFloat16> left_transposed(const Tile<BFloat16, Width>& tile, int row,
                                                 int column) {
  Left<BFloat16> a;
  ptx::ldmatrix_trans(a.r, block_address(tile, row, column, false));
  return a;
}
/// The product sums over rows of the tile; the operand's columns are columns of the tile.
template <int Width>
__device__ inline Right<BFloat16> right(const Tile<BFloat16, Width>& tile, int row, int column) {
  Right<BFloat16> b;
  ptx::ldmatrix_trans(b.r, block_address(tile, row, column, true));
  return b;
}
/// The operand's columns are rows of the tile.
template <int Width>
__device__ inline Right<BFloat16> right_transposed(const Tile<BFloat16, Width>& tile, int row,
                                                   int column) {
  Right<BFloat16> b;
  ptx::ldmatrix(b.r, block_address(tile, row, column, false));
  return b;
}

/// Calls f(h, j, two elements of row l / 4 + 8h, columns 8j + 2 (l % 4) …) for lane
/// l, the layout of sums.
template <int Width, class F>
__device__ inline void along_rows(const Tile<float, Width>& tile, int row, int column, F f) {
  using Rows = Tile<float, Width>;
  const int lane = lane_index(),
            at = Rows::place(lane / 4, lane % 4 * 2) ^ opaque(tile, column) * 4;
#pragma unroll
  for (int h = 0; h < 2; ++h)
#pragma unroll
    for (int j = 0; j < 2; ++j)
      f(h, j,
        *reinterpret_cast<const float2*>(tile.data + (row + 8 * h) * Rows::pitch +
                                         (at ^ 8 * j * 4)));
}
/// Calls f(h, j, two elements of rows 8j + 2 (l % 4) …, column l / 4 + 8h) for lane l.
template <int Width, class F>
__device__ inline void along_columns(const Tile<float, Width>& tile, int row, int column, F f) {
  using Rows = Tile<float, Width>;
  const int lane = lane_index(), to = opaque(tile, column) * 4,
            first = Rows::place(lane % 4 * 2, lane / 4) ^ to,
            second = Rows::place(lane % 4 * 2 + 1, lane / 4) ^ to;
#pragma unroll
  for (int h = 0; h < 2; ++h)
#pragma unroll
    for (int j = 0; j < 2; ++j) {
      const char* const from = tile.data + (row + 8 * j) * Rows::pitch;
      const int by = 8 * h * 4;
      f(h, j,
        float2{*reinterpret_cast<const float*>(from + (first ^ by)),
               *reinterpret_cast<const float*>(from + (second ^ by))});
    }
}
template <int Width>
__device__ inline Left<float> left(const Tile<float, Width>& tile, int row, int column) {
  Left<float> a;
  along_rows(tile, row, column, [&](int h, int j, float2 x) { a.set(h, j, x); });
  return a;
}
template <int Width>
__device__ inline Left<float> left_transposed(const Tile<float, Width>& tile, int row, int column) {
  Left<float> a;
  along_columns(tile, row, column, [&](int h, int j, float2 x) { a.set(h, j, x); });
  return a;
}
template <int Width>
__device__ inline Right<float> right(const Tile<float, Width>& tile, int row, int column) {
  Right<float> b;
  along_columns(tile, row, column,
                [&](int n, int j, float2 x) { b.set(n, j, 0, x.x), b.set(n, j, 1, x.y); });
  return b;
}
template <int Width>
__device__ inline Right<float> right_transposed(const Tile<float, Width>& tile, int row,
                                                int column) {
  Right<float> b;
  along_rows(tile, row, column,
             [&](int n, int j, float2 x) { b.set(n, j, 0, x.x), b.set(n, j, 1, x.y); });
  return b;
}

/// Sums converted to an operand, a Left or a Wide one.
template <class Operand>
__device__ inline Operand operand_of(const float (&d)[2][4]) {
  Operand a;
#pragma unroll
  for (int h = 0; h < 2; ++h)
#pragma unroll
    for (int j = 0; j < 2; ++j) a.set(h, j, {d[j][2 * h], d[j][2 * h + 1]});
  return a;
}

/// f32 sums in shared memory that are operands without loss of precision: for bf16 one tile of the
/// rounded sums and one of the remainders.
template <class T, int Width>
struct WideTile;
template <int Width>
struct WideTile<float, Width> {
  Tile<float, Width> all;
  static constexpr int row_bytes = Width * 4;
  __device__ WideTile(char* data, int) : all{data} {}

  /// Calls f(two sums of d, the same two elements of the tile).
  template <class D, class F>
  __device__ void each(int row, int column, D& d, F f) const {
    const int lane = opaque(all, lane_index());
#pragma unroll
    for (int h = 0; h < 2; ++h)
#pragma unroll
      for (int j = 0; j < 2; ++j)
        f(d[j][2 * h], d[j][2 * h + 1],
          *reinterpret_cast<float2*>(
              all.at(row + lane / 4 + 8 * h, column + 8 * j + lane % 4 * 2)));
  }
  __device__ void write(int row, int column, const float (&d)[2][4]) const {
    each(row, column, d, [](float x, float y, float2& to) { to = {x, y}; });
  }
  __device__ void add(int row, int column, const float (&d)[2][4]) const {
    each(row, column, d, [](float x, float y, float2& to) {
      const float2 old = to;
      to = {old.x + x, old.y + y};
    });
  }
  /// d += this tile's elements.
  __device__ void add_to(float (&d)[2][4], int row, int column) const {
    each(row, column, d, [](float& x, float& y, const float2& from) {
      const float2 old = from;
      x += old.x, y += old.y;
    });
  }
  __device__ void multiply_by(float (&d)[2][4], const Left<float>& a, int row, int column) const {
    multiply(d, a, right(all, row, column));
  }
  __device__ void multiply_by_transposed(float (&d)[2][4], const Left<float>& a, int row,
                                         int column) const {
    multiply(d, a, right_transposed(all, row, column));
  }
};
template <int Width>
struct WideTile<BFloat16, Width> {
  Tile<BFloat16, Width> high, low;
  static constexpr int row_bytes = Width * 4;
  __device__ WideTile(char* data, int rows) : high{data}, low{data + rows * Width * 2} {}

  __device__ void write(int row, int column, const float (&d)[2][4]) const {
    const int lane = lane_index();
    const auto a = operand_of<Wide<BFloat16>>(d);
#pragma unroll
    for (int h = 0; h < 2; ++h)
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        const int at =
            Tile<BFloat16, Width>::place(row + lane / 4 + 8 * h, column + 8 * j + lane % 4 * 2);
        *reinterpret_cast<uint32_t*>(high.data + at) = a.high.r[h + 2 * j];
        *reinterpret_cast<uint32_t*>(low.data + at) = a.low.r[h + 2 * j];
      }
  }
  __device__ void multiply_by(float (&d)[2][4], const Left<BFloat16>& a, int row,
                              int column) const {
    multiply(d, a, right(low, row, column));
    multiply(d, a, right(high, row, column));
  }
  __device__ void multiply_by_transposed(float (&d)[2][4], const Left<BFloat16>& a, int row,
                                         int column) const {
    multiply(d, a, right_transposed(low, row, column));
    multiply(d, a, right_transposed(high, row, column));
  }
};

/// The sum of x over the four lanes that share a row of sums; all four get it.
__device__ inline float row_sum(float x) {
  x += __shfl_xor_sync(0xffffffffu, x, 1);
  return x + __shfl_xor_sync(0xffffffffu, x, 2);
}

/// This lane and its neighbor (lane ^ distance) have two words each. Afterwards the lower lane
/// holds both first words, the upper lane both second words.
__device__ inline void exchange(uint32_t& first, uint32_t& second, int distance) {
  const bool upper = lane_index() & distance;
  const uint32_t got = __shfl_xor_sync(0xffffffffu, upper ? first : second, distance);
  if (upper)
    first = got;
  else
    second = got;
}

/// Stores 16 × 32 sums, rows l / 4 and l / 4 + 8 multiplied by `by`, to columns `column` …
/// of two rows in memory, 16 bytes at a time. Skips a null row and columns from `width` on.
/// All lanes take part.
__device__ inline void store_sums(BFloat16* const (&rows)[2], const float (&d)[2][2][4],
                                  const float (&by)[2], int column, int width) {
  const int at = column + lane_index() % 4 * 8;
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    uint32_t w[4];
#pragma unroll
    for (int n = 0; n < 4; ++n)
      w[n] = ptx::cvt_pack(d[n / 2][n % 2][2 * h] * by[h], d[n / 2][n % 2][2 * h + 1] * by[h]);
    exchange(w[0], w[1], 1), exchange(w[2], w[3], 1);
    exchange(w[0], w[2], 2), exchange(w[1], w[3], 2);
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
        exchange(w[0][e], w[1][e], 1);
      }
      const int at = column + block * 16 + t % 2 * 8 + t / 2 * 4;
      if (rows[h] && at < width)
        *reinterpret_cast<uint4*>(rows[h] + at) = {w[0][0], w[0][1], w[1][0], w[1][1]};
    }
}

/// Begins to copy rows first … first + 63 of x [.., width] to a tile. Rows outside 0 … rows − 1,
/// hidden rows, and columns from `width` on become zeros.
template <int Threads, class T, int Width>
__device__ inline void copy_rows(const Tile<T, Width>& to, const T* x, int64_t row_stride,
                                 int first, int rows, int width, const uint8_t* hidden = nullptr) {
  constexpr int V = pack_size<T>, pieces = Tile<T, Width>::pieces, each = Threads / pieces;
  unsigned thread = threadIdx.x;
  asm volatile("" : "+r"(thread));  // addresses are recomputed: too many to keep in registers
  const unsigned column = thread % pieces * V;
  unsigned r = thread / pieces;
  int row = first + int(r);
  const unsigned most = column < unsigned(width) ? unsigned(rows) : 0;
  const T* from = x + (row * row_stride + column);
#pragma unroll 4
  for (int i = 0; i < 64 / each; ++i, r += each, row += each, from += each * row_stride) {
    const bool in_range = unsigned(row) < most && !(hidden && hidden[row]);
    ptx::copy16(ptx::shared_address(to.at(r, column)), from, in_range);
  }
}

}  // namespace stretto::cuda
