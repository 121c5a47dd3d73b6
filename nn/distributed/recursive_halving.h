// Communication schedules of all-reduce: recursive halving (reduce-scatter) and recursive doubling
// (all-gather). Used by ProcessGroup and by NcclReducer.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace stretto::nn {

/// Returns the chunk of a rank, of `size` chunks: the rank with its bits reversed.
inline int chunk_of(int rank, int size) {
  int chunk = 0;
  for (int bit = 1; bit < size; bit <<= 1) chunk = 2 * chunk + (rank & bit ? 1 : 0);
  return chunk;
}

/// Returns where a chunk begins; chunk c ends at ends[c].
inline int64_t begin_of(const std::vector<int64_t>& ends, int chunk) {
  return chunk == 0 ? 0 : ends[std::size_t(chunk) - 1];
}

/// Reduce-scatter by recursive halving: round b = 0, 1, 2, … exchanges 1/2, 1/4, 1/8, … of the
/// chunks with rank `rank` XOR 2^b. Bit b of the rank selects the half that the rank keeps. At the
/// end each rank has the sum of its own chunk. Ranks 2i and 2i + 1 are added first, then pairs of
/// these sums.
///
///     add(peer, out, n_out, begin, n)    sends elements out … out + n_out − 1, receives n elements
///                                        and adds them to begin … begin + n − 1
template <class Add>
void recursive_halving(int rank, int size, const std::vector<int64_t>& ends, Add add) {
  int first = 0, count = size;
  for (int bit = 1; bit < size; bit <<= 1) {
    count /= 2;
    const int other = rank & bit ? first : first + count;
    if (rank & bit) first += count;
    const int64_t out = begin_of(ends, other), begin = begin_of(ends, first);
    add(rank ^ bit, out, begin_of(ends, other + count) - out, begin,
        begin_of(ends, first + count) - begin);
  }
}

/// All-gather by recursive doubling: the same rounds in reverse. At the end all ranks have all
/// chunks.
///
///     exchange(peer, out, n_out, begin, n)    sends elements out … out + n_out − 1 and receives
///                                             elements begin … begin + n − 1
template <class Exchange>
void recursive_doubling(int rank, int size, const std::vector<int64_t>& ends, Exchange exchange) {
  for (int bit = size >> 1, count = 1; bit >= 1; bit >>= 1, count *= 2) {
    const int own = chunk_of(rank, size) / count * count, other = own ^ count;
    const int64_t out = begin_of(ends, own), begin = begin_of(ends, other);
    exchange(rank ^ bit, out, begin_of(ends, own + count) - out, begin,
             begin_of(ends, other + count) - begin);
  }
}

}  // namespace stretto::nn
