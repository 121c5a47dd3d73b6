// Block sizes of matrix products (core/gemm/gemm.cpp, core/gemm/tiles.cpp).
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>

#include "../parallel.h"
#include "gemm.h"

namespace stretto::kernels {

inline constexpr int64_t block_k = 256;           // terms of a partial sum that starts at zero
inline constexpr int64_t block_columns = 1024;    // columns of a block of C (f32: 1 MB of B)
inline constexpr int64_t most_columns = 8192;     // most columns of B in one packed range
inline constexpr int64_t packed_bytes = 2 << 20;  // bytes of B that are packed at a time: fit in L3

// If A has few rows, B is read once, and each thread computes chunks of columns of C. Their sizes:
inline constexpr int64_t least_chunk_bytes = 64 << 10;  // bytes of B
inline constexpr int64_t most_chunk_bytes = 256 << 10;
inline constexpr int64_t least_chunk_columns = 256;  // columns, unless B is stored transposed

constexpr int64_t ceil_div(int64_t n, int64_t by) { return (n + by - 1) / by; }
constexpr int64_t round_up(int64_t n, int64_t to) { return ceil_div(n, to) * to; }

/// Returns the chunk size that divides n into equal chunks (the last one may be smaller): at most
/// about `most`, and a multiple of `unit`, or n if that is smaller.
constexpr int64_t part(int64_t n, int64_t most, int64_t unit) {
  return std::min(n, round_up(ceil_div(n, ceil_div(n, most)), unit));
}

/// Rows, columns or terms begin … begin + size − 1.
struct Range {
  int64_t begin, size;
};

/// Calls f(begin, end) for ranges of 0 … n − 1: on all threads, or once for the whole range.
template <class F>
void each_range(bool threads, int64_t n, int64_t grain, F&& f) {
  threads ? parallel_for(n, grain, f) : f(int64_t(0), n);
}

/// Returns the number of columns of a chunk of C, a multiple of `unit`, for a product with few rows.
/// The threads have about equal numbers of chunks.
template <class T, class OfB>
int64_t chunk_columns(const MatrixProduct<T, OfB>& o, int64_t unit) {
  const int64_t bytes = o.n * o.k * int64_t(sizeof(OfB)), threads = num_threads();
  const int64_t chunks = std::clamp(threads * ceil_div(bytes, threads * most_chunk_bytes),
                                    int64_t{1}, std::max<int64_t>(bytes / least_chunk_bytes, 1));
  return round_up(std::max(ceil_div(o.n, chunks), o.b.transposed ? 1 : least_chunk_columns), unit);
}

/// The division of C [m, n] into blocks. If `threads`, there are at least 16 blocks if C is large
/// enough, to balance the load of the threads.
struct Blocks {
  int64_t m, n, rows, columns;
  Blocks(bool threads, int64_t all_rows, int64_t all_columns, int64_t most_rows, int64_t row_unit,
         int64_t column_unit)
      : m(all_rows),
        n(all_columns),
        rows(part(m, most_rows, row_unit)),
        columns(part(n, block_columns, column_unit)) {
    while (threads && count() < 16) {
      if (rows > 64)
        rows = round_up(ceil_div(rows, 2), row_unit);
      else if (columns >= 256)
        columns = round_up(ceil_div(columns, 2), column_unit);
      else
        break;
    }
  }
  int64_t across() const { return ceil_div(n, columns); }
  int64_t count() const { return ceil_div(m, rows) * across(); }
  /// Returns the rows and columns of a block.
  std::pair<Range, Range> at(int64_t block) const {
    const int64_t width = across(), i = block / width * rows, j = block % width * columns;
    return {{i, std::min(rows, m - i)}, {j, std::min(columns, n - j)}};
  }
};

}  // namespace stretto::kernels
