// The masks of fused attention that are tensors: prefixes, global tokens, segments and hidden keys.
//
// Kernels test them in two steps. Summaries of blocks of 32 keys, and of 32 × 32 hidden keys, decide
// whether a tile of queries and keys is wholly hidden, wholly visible or neither:
//
//             keys 0 … 31    32 … 63     64 … 95             A lane tests a step, a warp 32 steps at
//   queries  ┌───────────┬───────────┬───────────┐           once. A block of threads visits only the
//    0 … 31  │ all       │ none      │ none      │           steps of which it sees any key; in
//            ├───────────┼───────────┼───────────┤           others it loads and computes nothing.
//   32 … 63  │ some      │ some      │ none      │           Single scores are tested where a tile
//            └───────────┴───────────┴───────────┘           is neither hidden nor visible.
//
// The summaries of keys have O(N) elements, and those of hidden keys 1/1024 of the mask's. A block
// whose segments are not contiguous is summarized by its smallest and its largest segment.
#pragma once

#include "../../core/formulas/attention_operands.h"
#include "cuda/runtime/common.cuh"

namespace stretto::cuda {

/// Elements per query and key, with the strides of the tensor they are broadcast
/// from: these may be 0.
struct Scores {
  void* data = nullptr;
  int64_t batch = 0, head = 0, query = 0, key = 0;

  template <class T>
  __device__ T* of(int b, int h) const {
    return static_cast<T*>(data) + (b * batch + h * head);
  }
};

/// Calls f(query, key, score) for a thread's scores of slabs of 16 rows and tiles of 8 columns: row
/// r, column c is query i + r and key j + c or, transposed, query i + c and key j + r + Slope · c.
template <bool Transposed, int Slope = 0, int Slabs, int Tiles, class F>
__device__ inline void each_score(float (&s)[Slabs][Tiles][4], int i, int j, const F& f) {
  const int lane = threadIdx.x % 32;
#pragma unroll
  for (int sl = 0; sl < Slabs; ++sl)
#pragma unroll
    for (int n = 0; n < Tiles; ++n)
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const int r = 16 * sl + lane / 4 + 8 * (e >> 1), c = 8 * n + 2 * (lane % 4) + (e & 1);
        f(i + (Transposed ? c : r), j + (Transposed ? r + Slope * c : c), s[sl][n][e]);
      }
}

/// A window as kernels read it: 2^21, more than any distance, if there is none.
inline int window_of(int64_t window) {
  constexpr int64_t unlimited = int64_t(1) << 21;
  return int(window > 0 ? std::min(window, unlimited) : unlimited);
}

/// The part of a range of keys that a range of queries sees.
enum class Sight : uint8_t { none, some, all };

/// The masks that are tensors, and the windows from which global tokens are exempt.
struct TensorMask {
  static constexpr int block = 32;  // of the summaries
  const int64_t* prefix = nullptr;  // [B]; null: none
  /// Segment ids [B, N, words], in words of 32 bits; null: none.
  const int* segments = nullptr;
  int words = 0;
  const uint8_t* global = nullptr;  // [B, N]; null: none
  int window = 0, after = 0;        // hidden unless global: keys so far before or after the query
  Scores hidden;                    // bytes; null: none
  int m = 0, n = 0;                 // queries, keys
  /// Summaries: of blocks of keys [B, blocks], and for hidden keys a Sight per block of queries and
  /// keys.
  int blocks = 0;
  const int64_t *lowest = nullptr, *highest = nullptr;
  const uint8_t* any_global = nullptr;
  Scores sights;

  __host__ __device__ bool defined() const { return prefix || segments || global || hidden.data; }

  struct Range {
    int64_t low, high;
  };
  /// The smallest and the largest segment of the blocks that contain keys j … end − 1.
  __device__ Range segments_of(int b, int j, int end) const {
    Range range = {INT64_MAX, INT64_MIN};
#pragma unroll 1
    for (int x = b * blocks + j / block; x <= b * blocks + (end - 1) / block; ++x) {
      range.low = min(range.low, lowest[x]);
      range.high = max(range.high, highest[x]);
    }
    return range;
  }
  __device__ bool has_global(int b, int j, int end) const {
    int any = 0;
#pragma unroll 1
    for (int x = b * blocks + j / block; x <= b * blocks + (end - 1) / block; ++x)
      any |= any_global[x];
    return any != 0;
  }
  __device__ Sight sight_of_hidden(int b, int h, int i, int end_i, int j, int end_j) const {
    bool any = false, all = true;
    const uint8_t* const from = sights.of<const uint8_t>(b, h);
#pragma unroll 1
    for (int y = i / block; y <= (end_i - 1) / block; ++y)
#pragma unroll 1
      for (int x = j / block; x <= (end_j - 1) / block; ++x) {
        const auto one = Sight(from[y * sights.query + x * sights.key]);
        any = any || one != Sight::none;
        all = all && one == Sight::all;
      }
    return all ? Sight::all : any ? Sight::some : Sight::none;
  }
  /// What `queries` queries from i on see of `keys` keys from j on, under these masks. Ranges may
  /// exceed those of the queries and keys. May return `some` for none or all.
  __device__ Sight sight(int b, int h, int i, int queries, int j, int keys) const {
    const int end_i = min(i + queries, m), end_j = min(j + keys, n);
    j = max(j, 0);
    if (i >= end_i || j >= end_j) return Sight::none;
    const int p = i + n - m, end_p = end_i + n - m;  // positions
    bool all = true;
    if (prefix) {
      const int64_t in_prefix = prefix[b];
      if (j >= end_p && j >= in_prefix) return Sight::none;
      all = end_j <= p + 1 || end_j <= in_prefix;
    }
    if (global) {
      if ((p - end_j >= window - 1 || j - end_p >= after - 1) && !has_global(b, j, end_j) &&
          !has_global(b, p, end_p))
        return Sight::none;
      all = all && end_p - j <= window && end_j - p <= after;
    }
    if (segments) {
      const Range of_keys = segments_of(b, j, end_j), of_queries = segments_of(b, p, end_p);
      if (of_keys.low > of_queries.high || of_queries.low > of_keys.high) return Sight::none;
      all = all && of_keys.low == of_queries.high && of_queries.low == of_keys.high;
    }
    if (hidden.data) {
      const Sight one = sight_of_hidden(b, h, i, end_i, j, end_j);
      if (one == Sight::none) return one;
      all = all && one == Sight::all;
    }
    return all ? Sight::all : Sight::some;
  }

  /// Calls f(hides) for each mask that is set: hides(i, j) is true if it hides key j from query i.
  /// Indices out of range count as the nearest ones.
  template <class F>
  __device__ void each_mask(int b, int h, const F& f) const {
    const auto key = [this](int j) { return min(max(j, 0), n - 1); };
    const auto query = [this](int i) { return min(i, m - 1); };
    const int shift = n - m;
    if (prefix) {
      const int64_t in_prefix = prefix[b];
      f([=](int i, int j) { return j > i + shift && j >= in_prefix; });
    }
    if (global) {
      const uint8_t* const row = global + int64_t(b) * n;
      const int before = window, behind = after;
      f([=](int i, int j) {
        const int distance = i + shift - j;
        return (distance >= before || -distance >= behind) &&
               !(row[key(j)] | row[query(i) + shift]);
      });
    }
    if (segments) {
      const int step = words;
#pragma unroll 1
      for (int word = 0; word < step; ++word) {
        const int* const row = segments + int64_t(b) * n * step + word;
        f([=](int i, int j) { return row[key(j) * step] != row[(query(i) + shift) * step]; });
      }
    }
    if (hidden.data) {
      const uint8_t* const from = hidden.of<const uint8_t>(b, h);
      const int64_t per_query = hidden.query, per_key = hidden.key;
      f([=](int i, int j) { return from[query(i) * per_query + key(j) * per_key] != 0; });
    }
  }
  /// Sets scores of hidden keys to `nothing`, in the layout of each_score().
  template <bool Transposed, int Slope = 0, int Slabs, int Tiles>
  __device__ void hide(float (&s)[Slabs][Tiles][4], int b, int h, int i, int j,
                       float nothing) const {
    each_mask(b, h, [&](const auto& hides) {
      each_score<Transposed, Slope>(s, i, j, [&](int query, int key, float& x) {
        if (hides(query, key)) x = nothing;
      });
    });
  }
  __device__ bool hides(int b, int h, int i, int j) const {
    bool any = false;
    each_mask(b, h, [&](const auto& one) { any = any || one(i, j); });
    return any;
  }
};

/// Visits the steps of `Step` keys or queries for which sees(step) is true, in order. Without
/// Tested, visits all.
template <int Step, bool Tested>
struct VisibleSteps {
  uint32_t seen = 0;  // of the 32 steps before `untested`
  int untested = 0;

  /// Returns the first step from `begin` on, or `end` or more.
  template <class F>
  __device__ int first(int begin, int end, const F& sees) {
    seen = 0;
    untested = begin;
    return Tested ? next(begin, end, sees) : begin;
  }
  /// Returns the step after `at`, or `end` or more.
  template <class F>
  __device__ int next(int at, int end, const F& sees) {
    if constexpr (Tested) {
      while (seen == 0 && untested < end) {
        const int mine = untested + int(threadIdx.x) % 32 * Step;
        seen = __ballot_sync(0xffffffffu, mine < end && sees(mine));
        untested += 32 * Step;
      }
      if (seen == 0) return max(end, at + Step);
      at = untested + (__ffs(int(seen)) - 33) * Step;
      seen &= seen - 1;
      return at;
    } else {
      return at + Step;
    }
  }
};

/// The tensors of a mask, with summaries if `summarized`. Tensors made for it are added to `kept`.
TensorMask tensor_mask(const AttentionOperands& inputs, bool summarized, Tensors& kept);

}  // namespace stretto::cuda
