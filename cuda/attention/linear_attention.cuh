// Shared by the kernels of linear attention and random features: operands, a thread's place, and
// how launches are split into blocks.
#pragma once

#include "cuda/attention/linear_attention.h"
#include "cuda/runtime/fragments.cuh"
#include "cuda/runtime/head_rows.cuh"

namespace stretto::cuda::linear {

using namespace tile;

constexpr int chunk = 64, threads = 256;

/// The widths that a kernel is compiled for: F and Dv rounded up to multiples of 64.
struct Widths {
  int features = 64, values = 64;
};

/// States [F, Dv + 1] in memory, by unit (batch entry and key head) and segment.
template <class T>
struct States {
  T* data = nullptr;
  int64_t unit = 0, segment = 0;
  __device__ T* at(int u, int s) const { return data ? data + u * unit + s * segment : nullptr; }
};

/// Sizes that all kernels know. Position p of a chunk is that of key p and of query p − shift.
struct Sizes {
  int heads, groups, m, n, f, dv;
  int first = 0, shift = 0;  // the first position of chunk 0
  int chunks = 0, per_segment = 0;
};

/// The operands of a launch; null if a kernel does not use or compute them.
template <class T>
struct Args {
  HeadRows<const T> q, k, v, g;  // g: gradient of y
  HeadRows<T> y, dq, dk, dv;
  const uint8_t* hidden = nullptr;  // [B, N]
  States<const float> before;
  States<float> after;
  float *totals = nullptr, *slopes = nullptr;  // denominators and e [B, H, M]
  Sizes size;
  float eps = 0;

  __device__ const uint8_t* hidden_of(int b) const {
    return hidden ? hidden + int64_t(b) * size.n : nullptr;
  }
};

/// The place of a thread: its warp's rows 16 warp_row … and half of the columns, warp_column, and
/// its row and column in 16 × 16 sums.
struct Place {
  int warp_row = int(threadIdx.x) / 32 % 4, warp_column = int(threadIdx.x) / 128;
  int row = lane_index() / 4, column = lane_index() % 4 * 2;

  /// Prevents the compiler from computing derived values before a loop, for all iterations: that
  /// would need too many registers.
  __device__ void make_opaque() {
    asm volatile("" : "+r"(warp_row), "+r"(warp_column), "+r"(row), "+r"(column));
  }
  /// The chunk's row of sums 2h and 2h + 1.
  __device__ int chunk_row(int h) const { return 16 * warp_row + row + 8 * h; }
  /// The first column of block i in the warp's half of a row.
  template <int Width>
  __device__ int half(int i) const {
    return Width / 2 * warp_column + 16 * i;
  }
  /// True for one of the threads, in two warps, that share a row.
  __device__ bool owns_row() const { return warp_column == 0 && column == 0; }
};

/// Sums of a warp: 16 rows and half of the columns, in 16 × 32 blocks.
template <int Width>
using HalfRows = float[Width / 64][2][2][4];

/// d += a b, for rows `row` … of b.
template <class F, class B>
__device__ __forceinline__ void multiply_half(HalfRows<B::columns>& d, const Place& p, const F& a,
                                              const B& b, int row) {
#pragma unroll
  for (int y = 0; y < B::columns / 32; ++y)
    multiply(d[y / 2][y % 2], a, columns_of<Side::right>(b, row, p.half<B::columns>(y)));
}

/// Stores rows l / 4 and l / 4 + 8 of the warp's sums, times `by`.
template <class T, int N>
__device__ __forceinline__ void store_half(T* const (&rows)[2], const float (&d)[N][2][2][4],
                                           const float (&by)[2], const Place& p, int width) {
#pragma unroll
  for (int y = 0; y < N; ++y) store_sums(rows, d[y], by, p.half<64 * N>(2 * y), width);
}

/// Row i of head h; null if i is not in 0 … length − 1.
template <class T>
__device__ __forceinline__ T* row_or_null(const HeadRows<T>& x, int b, int h, int i, int length) {
  return i >= 0 && i < length ? x.at(b, h, i) : nullptr;
}

/// Replaces sums of segments [units, segments, F (Dv + 1)] by the states before them, starting from
/// `before` (null: 0). Writes the state after the last segment to `after` unless that is null.
void before_segments(const char* op, int device, float* sums, int64_t units, int segments,
                     int64_t size, const float* before, float* after);

/// The states that queries start from: causal, those before each segment of `s`; bidirectional,
/// that of all keys. Computed together with `after` unless in.before is sufficient.
struct KeyStates {
  States<const float> at;
  Tensor memory;
};
KeyStates key_states(const LinearAttentionOperands& in, const Tensor& k, const Tensor& v,
                     const Sizes& s, int segments, const Tensor& after);

/// The number of segments that chunks of `units` blocks are split into: enough to fill a GPU about
/// twice, with at least 4 chunks each.
inline int segments_for(int64_t units, int64_t chunks) {
  const int64_t most = ceil_div(chunks, int64_t(4));
  return units >= 100 ? 1 : int(std::clamp<int64_t>(2 * planned_sms / units, 1, most));
}

/// Calls go<Widths>() for F and Dv.
template <class F>
void with_widths(int64_t f, int64_t dv, F go) {
  if (f > 128) return go.template operator()<Widths{.features = 256}>();
  if (f > 64)
    return dv > 64 ? go.template operator()<Widths{.features = 128, .values = 128}>()
                   : go.template operator()<Widths{.features = 128}>();
  dv > 64 ? go.template operator()<Widths{.values = 128}>() : go.template operator()<Widths{}>();
}

/// x if its rows are contiguous and all begin at multiples of 16 bytes, else a copy.
inline Tensor aligned_rows(const Tensor& x) {
  const Tensor y = x.detach();
  if ((y.strides().back() == 1 || y.size(-1) == 1) && rows_aligned(y, 16 / item_size(y.dtype())))
    return y;
  const Tensor z = y.contiguous();
  return aligned(z.raw_data()) ? z : z.clone();
}

inline Sizes sizes_of(const Tensor& q, const Tensor& k, const Tensor& v) {
  return {.heads = int(q.size(1)),
          .groups = int(k.size(1)),
          .m = int(q.size(2)),
          .n = int(k.size(2)),
          .f = int(q.size(3)),
          .dv = int(v.size(3))};
}
/// The chunks in which queries and keys are processed together (causal), or separately.
inline void causal_chunks(Sizes& s) {
  s.shift = s.n - s.m, s.first = std::min(0, s.shift);
  s.chunks = (s.n - s.first + chunk - 1) / chunk;
}
inline void plain_chunks(Sizes& s, int length) {
  s.shift = s.first = 0;
  s.chunks = (length + chunk - 1) / chunk;
}
inline int cut(Sizes& s, int64_t units) {
  const int segments = segments_for(units, s.chunks);
  s.per_segment = (s.chunks + segments - 1) / segments;
  return (s.chunks + s.per_segment - 1) / s.per_segment;
}

template <class T>
Args<T> args_of(const LinearAttentionOperands& in, const Sizes& s) {
  return {.hidden = data_or_null<uint8_t>(in.padding), .size = s, .eps = float(in.eps)};
}

}  // namespace stretto::cuda::linear
