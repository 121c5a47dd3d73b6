// Rows of bf16 or f32 in shared memory: their layout, and copies from global memory.
//
// The 16-byte chunks of a row are swizzled by the row, so that blocks are read and sums are written
// without bank conflicts, along rows as well as along columns. The chunks of rows of 64 bf16
// elements, in the order of their addresses:
//
//     row 0   0 1 2 3 4 5 6 7
//     row 1   1 0 3 2 5 4 7 6
//     row 2   2 3 0 1 6 7 4 5
//     …       …
//     row 7   7 6 5 4 3 2 1 0      row 8 is as row 0
//
// Where tensor cores multiply bf16 parts of f32 elements (fragments.cuh), the parts of rows are
// stored one after the other: all first parts, all second parts, …
#pragma once

#include "cuda/runtime/common.cuh"
#include "cuda/runtime/ptx.cuh"

namespace stretto::cuda::tile {

__device__ inline int lane_index() { return int(threadIdx.x % 32); }

/// Returns x, hidden from the optimizer: values derived from it are recomputed at each use instead
/// of occupying registers throughout a loop.
__device__ inline int opaque(int x) {
  asm volatile("" : "+r"(x));
  return x;
}

/// The layout of rows of Width elements, which begin at a multiple of 256 bytes.
template <class T, int Width>
struct Rows {
  static constexpr int V = pack_size<T>, pitch = Width * int(sizeof(T)), chunks = pitch / 16;
  __device__ static uint32_t swizzle(int row) {
    if constexpr (sizeof(T) == 4)
      return (row & 2) | ((row ^ row >> 2) & 1) << 2;
    else
      return chunks >= 8 ? row & 7 : (row >> 1) & 3;
  }
  /// The byte offset of a chunk.
  __device__ static uint32_t at(int row, int chunk) {
    return row * pitch + ((chunk ^ swizzle(row)) << 4);
  }
  /// The byte offset of an element.
  __device__ static uint32_t place(int row, int column) {
    return at(row, column / V) + column % V * uint32_t(sizeof(T));
  }
  /// The byte offsets that a lane adds to load 16 rows × 16 columns of bf16 (xor x << 5 for columns
  /// 16 x …): the table in fragments.cuh.
  __device__ static uint32_t as_rows(int lane) { return at(lane % 16, lane / 16); }
  __device__ static uint32_t as_columns(int lane) { return at(column_row(lane), lane / 8 % 2); }
  __device__ static int column_row(int lane) { return lane % 8 + lane / 16 * 8; }
};

/// `Count` rows in shared memory, part after part. `address` is that of the area, or of the place
/// in it that a lane reads. In a ring, row r is at place r mod Count, a power of two.
template <class T, int Width, int Count, int Parts = 1>
struct Area {
  using Rows = tile::Rows<T, Width>;
  static constexpr int columns = Width, count = Count, parts = Parts;
  static constexpr int pitch = Rows::pitch, part = Count * pitch, bytes = Parts * part;
  uint32_t address;

  __device__ Area operator+(uint32_t offset) const { return {address + offset}; }
};

/// An area at a pointer, for code that also reads and writes elements.
template <class T, int Width, int Count, int Parts = 1>
struct Tile {
  using Area = tile::Area<T, Width, Count, Parts>;
  using Rows = typename Area::Rows;
  static constexpr int columns = Width, part = Area::part, bytes = Area::bytes;
  char* data;

  __device__ Area area() const { return {ptx::shared_address(data)}; }
  __device__ char* at(int row, int column) const { return data + Rows::place(row, column); }
  __device__ Tile<T, Width, Count> of_part(int i) const { return {data + i * part}; }
  /// Returns x, opaque in wide tiles: addresses derived from it would be computed before a loop for
  /// all of its iterations.
  __device__ static int opaque_if_wide(int x) { return Rows::pitch > 128 ? opaque(x) : x; }
};

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
__device__ inline void copy_rows(A area, const Source& from, int first, int limit, int to = 0) {
  constexpr int chunks = A::Rows::chunks, each = Threads / chunks,
                times = (Count + each - 1) / each, unrolled = times <= 4 ? times : 1;
  static_assert(each % 8 == 0 && (A::count & (A::count - 1)) == 0);
  const int x = threadIdx.x % chunks;
  int r = threadIdx.x / chunks;
  const uint32_t rows = x < from.chunks ? limit : 0;
  const uint32_t chunk = (x ^ A::Rows::swizzle(to + r)) << 4;
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

/// As copy_rows(), for one f32 per row.
template <int Threads, int Count, int Ring = Count>
__device__ inline void copy_line(uint32_t area, const float* from, int first, int limit,
                                 int to = 0) {
  static_assert((Ring & (Ring - 1)) == 0);
#pragma unroll 1
  for (int c = threadIdx.x; c < Count; c += Threads)
    ptx::copy4(area + 4 * ((to + c) & (Ring - 1)), from + (first + c),
               uint32_t(first + c) < uint32_t(limit));
}
/// The size of a ring of at least `rows` rows.
constexpr int ring_of(int rows) {
  return rows <= 64 ? 64 : rows <= 128 ? 128 : rows <= 256 ? 256 : 512;
}

/// Waits for the block's copies.
__device__ inline void wait_for_copies() {
  ptx::wait<0>();
  __syncthreads();
}

}  // namespace stretto::cuda::tile
