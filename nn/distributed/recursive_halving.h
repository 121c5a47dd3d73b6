// A sum over processes by halves: who sends what to whom.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace stretto::nn {

/// Which of `size` pieces is a process's: the bits of its rank turned round.
inline int chunk_of(int rank, int size) {
  int piece = 0;
  for (int bit = 1; bit < size; bit <<= 1) piece = 2 * piece + (rank & bit ? 1 : 0);
  return piece;
}

/// Where a piece begins of those that end at `ends`.
inline int64_t begin_of(const std::vector<int64_t>& ends, int piece) {
  return piece == 0 ? 0 : ends[std::size_t(piece) - 1];
}

/// Half of the pieces is exchanged with the neighbour, then a quarter with the pair beside, and so
/// on: the last bit of a rank says in which half of the numbers its piece lies. At the end a
/// process has the sum of its own piece. Processes 2i and 2i + 1 are added first, then pairs of
/// these.
///
///     add(peer, out, n_out, begin, n)    sends numbers out …, receives n and adds them to begin …
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

/// The way back: all have all pieces.
///
///     take(peer, out, n_out, begin, n)   sends numbers out …, and receives those at begin …
template <class Take>
void recursive_doubling(int rank, int size, const std::vector<int64_t>& ends, Take take) {
  for (int bit = size >> 1, count = 1; bit >= 1; bit >>= 1, count *= 2) {
    const int mine = chunk_of(rank, size) / count * count, theirs = mine ^ count;
    const int64_t out = begin_of(ends, mine), begin = begin_of(ends, theirs);
    take(rank ^ bit, out, begin_of(ends, mine + count) - out, begin,
         begin_of(ends, theirs + count) - begin);
  }
}

}  // namespace stretto::nn
