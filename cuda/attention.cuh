// What the kernels of fused attention share (cuda/attention*.cu): their arguments, which keys a
// query sees, and which weights are dropped.
//
// Query i stands at position i + N − M; a lag is a key less a position. Scores are kept divided by
// their scale, exponentials are of 2.
#pragma once

#include "cuda/attention.h"
#include "cuda/capture.h"
#include "cuda/tile.cuh"

namespace stretto::cuda {

/// Where the rows of the heads of a [B, H, L, D] are.
template <class T>
struct HeadRows {
  T* data = nullptr;
  int64_t batch = 0, head = 0, row = 0, part = 0;
  int chunks = 0;

  template <class U = T>
  __device__ U* at(int b, int h, int i) const {
    return reinterpret_cast<U*>(data) + (b * batch + h * head + i * row);
  }
  __device__ tile::Source source(int b, int h) const {
    return {data + b * batch + h * head, row, part, chunks};
  }
};

struct AttentionArgs {
  HeadRows<const BFloat16> q, k, v, p, table, g;  // table: [H or 1, R, D] as one batch entry
  HeadRows<BFloat16> out, dq, dk, dv, dp;         // or f32, where there are three parts
  const float* bias;       // [H or 1, width], over the scale; none where the width is 0
  const uint8_t* padding;  // [B, N]; null: none
  float *sums, *delta;     // [B, H, M]; the delta is negative
  float *dtable, *dbias;   // [segments, H, rows, D], [segments, H, width]
  int64_t bias_head;
  int parts;  // 1: bf16; 3: f32
  int batch, heads, per_group, m, n, shift;
  int rows, zero_row, first, width;
  int causal, window, block;
  int low_lag, high_lag, segments, pieces;  // of the kernel that walks lags
  float scale, scale2;                      // scale2 = scale · log₂ e
  uint32_t drop_below;                      // 0: nothing is dropped
  float keep_scale;
  DrawKey key;

  /// Keys first_key … end_key − 1 are what a query sees but for padding.
  __device__ int first_key(int position) const {
    if (window > 0) return max(0, position - window + 1);
    if (block > 0) return max(0, (position / block - 1) * block);
    return 0;
  }
  __device__ int end_key(int position) const { return causal ? min(position + 1, n) : n; }
  /// Positions from here on see no key up to `key`.
  __device__ int end_position(int last_key) const {
    if (window > 0) return min(n, last_key + window);
    if (block > 0) return min(n, (last_key / block + 2) * block);
    return n;
  }
  /// Steps of `step` keys from `begin` on to what the queries i … i + count − 1 see.
  __device__ int tiles_of(int begin, int i, int count, int step) const {
    const int keys = i < m ? end_key(min(i + count, m) - 1 + shift) - begin : 0;
    return keys > 0 ? (keys + step - 1) / step : 0;
  }
  __device__ bool hidden(int b, int j) const {
    return j < 0 || j >= n || (padding && padding[int64_t(b) * n + j]);
  }
  __device__ const float* bias_of(int h) const { return bias + h * bias_head; }

  /// Puts `nothing` where a query does not see a key, of slabs of 16 queries whose first stands at
  /// `position` and tiles of 8 keys from j0 on.
  template <int Tiles, int Slabs>
  __device__ void hide_keys(float (&s)[Slabs][Tiles][4], int b, int j0, int position,
                            float nothing) const {
    const int lane = threadIdx.x % 32, first = j0 + 2 * (lane % 4);
    uint32_t padded = 0;
    if (padding) {
#pragma unroll
      for (int c = 0; c < 2 * Tiles; ++c)
        padded |= uint32_t(hidden(b, first + 8 * (c / 2) + c % 2)) << c;
    }
#pragma unroll
    for (int sl = 0; sl < Slabs; ++sl)
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int at = position + 16 * sl + lane / 4 + 8 * half;
        const int low = first_key(at) - first, high = end_key(at) - first;
#pragma unroll
        for (int c = 0; c < 2 * Tiles; ++c) {
          const int j = 8 * (c / 2) + c % 2;
          if (j < low || j >= high || (padded >> c & 1)) s[sl][c / 2][2 * half + c % 2] = nothing;
        }
      }
  }
};

/// Whether relative positions have rows, and whether queries of their own meet these.
enum class Positions { none, shared, apart };
template <Positions Of>
using At = std::integral_constant<Positions, Of>;
/// f(At<positions of the call>()): each launcher's choice among its kernels.
template <class F>
void with_positions(const AttentionArgs& a, const F& f) {
  if (!a.table.data)
    f(At<Positions::none>());
  else if (a.p.data == a.q.data)
    f(At<Positions::shared>());
  else
    f(At<Positions::apart>());
}

/// Whether weight `index` is kept.
__device__ inline bool kept(const RandomKey& key, uint64_t index, uint32_t below) {
  const Random4 x = philox(key, index >> 2);
  const int i = int(index & 3);
  const uint32_t low = i & 1 ? x.v[1] : x.v[0], high = i & 1 ? x.v[3] : x.v[2];
  return ((i & 2 ? high : low) >> 8) >= below;
}

/// Bit 4 n + e: whether weight e of tile n of 8 keys is kept, of the 16 queries from i on and the
/// keys from j on; `row` counts the queries of the batch entries and heads before.
template <int Tiles>
__device__ inline uint32_t kept_of_queries(const AttentionArgs& a, const RandomKey& key,
                                           int64_t row, int i, int j) {
  const int lane = threadIdx.x % 32;
  uint32_t bits = 0;
#pragma unroll 1
  for (int x = 0; x < 4 * Tiles; ++x) {
    const int query = i + lane / 4 + 8 * (x >> 1 & 1),
              k = j + 8 * (x >> 2) + 2 * (lane % 4) + (x & 1);
    bits |= uint32_t(kept(key, uint64_t(row + query) * uint64_t(a.n) + uint64_t(k), a.drop_below))
            << x;
  }
  return bits;
}

/// The same of tiles turned over: 16 keys from j on and tiles of 8 queries from i on; keys go up by
/// `slope` with each query.
template <int Tiles>
__device__ inline uint32_t kept_of_keys(const AttentionArgs& a, const RandomKey& key, int64_t row,
                                        int i, int j, int slope) {
  const int lane = threadIdx.x % 32;
  uint32_t bits = 0;
#pragma unroll 1
  for (int x = 0; x < 4 * Tiles; ++x) {
    const int column = 8 * (x >> 2) + 2 * (lane % 4) + (x & 1);
    const int k = j + lane / 4 + 8 * (x >> 1 & 1) + slope * column;
    bits |=
        uint32_t(kept(key, uint64_t(row + i + column) * uint64_t(a.n) + uint64_t(k), a.drop_below))
        << x;
  }
  return bits;
}

/// Two neighbouring numbers of a result's row: bf16 to their place in shared memory, from where
/// the row leaves in pieces of 16 bytes; f32 to row i < limit itself.
template <int Parts>
__device__ inline void put(void* place, const HeadRows<BFloat16>& to, int b, int h, int i,
                           int limit, int chunk, float x, float y) {
  if constexpr (Parts == 1) {
    *static_cast<uint32_t*>(place) = ptx::cvt_pack(x, y);
  } else {
    if (i < limit && chunk < to.chunks)
      *reinterpret_cast<float2*>(to.at<float>(b, h, i) + chunk * 8 + 2 * (threadIdx.x % 4)) = {x,
                                                                                               y};
  }
}

/// An operand as kernels read it; what is made for it is kept.
HeadRows<const BFloat16> attention_operand(const Tensor& x, Tensors& kept);
/// The arguments that forward and backward have in common; operands of f32 as they are without
/// `cut`.
AttentionArgs attention_args(const AttentionCall& call, Tensors& kept, bool cut = true);

// Launchers of the backward kernels, each in the file of its name. D: 32, 64 or 128.
void launch_attention_keys(const AttentionArgs& a, int d, int device);
void launch_attention_queries(const AttentionArgs& a, int d, int device);
void launch_attention_lags(const AttentionArgs& a, int d, int device);
/// Lags that a block of the last one serves.
constexpr int lags_per_block = 128;

template <class T>
HeadRows<T> head_rows(const Tensor& x) {
  if (!x.defined()) return {};
  const Shape& s = x.strides();
  return {static_cast<T*>(x.raw_data()), s[0], s[1], s[2], 0, int(x.size(3) / 8)};
}

}  // namespace stretto::cuda
