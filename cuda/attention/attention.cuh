// What the kernels of fused attention share (cuda/attention*.cu): their arguments, which keys a
// query sees, and which weights are dropped.
//
// Query i stands at position i + N − M; a lag is a key less a position. Scores are kept divided by
// their scale, exponentials are of 2.
#pragma once

#include "cuda/attention/attention.h"
#include "cuda/runtime/capture.h"
#include "cuda/runtime/index.h"
#include "cuda/runtime/tile.cuh"

namespace stretto::cuda {

/// Rows of the heads of a [B, H, L, D] in f32 or bf16; strides in elements. T: void or const void.
/// f32 operands of tensor cores are cut into three of bf16, `part` elements apart.
template <class T>
struct HeadRows {
  T* data = nullptr;
  int64_t batch = 0, head = 0, row = 0, part = 0;
  int chunks = 0;  // of 8 elements in a row

  template <class Element>
  __device__ Element* at(int b, int h, int i) const {
    return static_cast<Element*>(data) + (b * batch + h * head + i * row);
  }
  /// The rows of a head, of bf16.
  __device__ tile::Source source(int b, int h) const {
    return {at<const BFloat16>(b, h, 0), row, part, chunks};
  }
};
template <class T>
HeadRows<T> head_rows(const Tensor& x) {
  if (!x.defined()) return {};
  const Shape& s = x.strides();
  return {x.raw_data(), s[0], s[1], s[2], 0, int(x.size(3) / 8)};
}

/// Numbers of queries and keys, as the tensor they broadcast from has them: strides may be 0.
struct Scores {
  void* data = nullptr;
  int64_t batch = 0, head = 0, query = 0, key = 0;

  template <class T>
  __device__ T* of(int b, int h) const {
    return static_cast<T*>(data) + (b * batch + h * head);
  }
};

/// f(query, key, number) for a thread's numbers of slabs of 16 rows and tiles of 8 columns: row r,
/// column c is of query i + r and key j + c or, turned over, query i + c and key j + r + Slope · c.
template <bool Turned, int Slope = 0, int Slabs, int Tiles, class F>
__device__ inline void each_score(float (&s)[Slabs][Tiles][4], int i, int j, const F& f) {
  const int lane = threadIdx.x % 32;
#pragma unroll
  for (int sl = 0; sl < Slabs; ++sl)
#pragma unroll
    for (int n = 0; n < Tiles; ++n)
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const int r = 16 * sl + lane / 4 + 8 * (e >> 1), c = 8 * n + 2 * (lane % 4) + (e & 1);
        f(i + (Turned ? c : r), j + (Turned ? r + Slope * c : c), s[sl][n][e]);
      }
}

/// The arguments of all kernels of fused attention, by purpose.
struct AttentionArgs {
  struct Sizes {
    int batch, heads, per_group, m, n;  // per_group: heads that share a key head
    int shift;                          // N − M, the position of the first query
    int parts;                          // of an element: 1 in bf16, 3 in f32
    Divider by_heads, by_group;
  } sizes;
  /// What tensor cores multiply. p: the position queries, q if there are none; g: the gradient of
  /// the output, in f32 divided by the sums of weights.
  struct Operands {
    HeadRows<const void> q, k, v, p, g;
  } operands;
  /// Rows of relative positions, [H or 1, R, D] as one batch entry; relative position r has row
  /// zero_row + r.
  struct Table {
    HeadRows<const void> rows;
    int count, zero_row;
  } table, value_table;
  /// f32 [H or 1, width], divided by the scale; none if the width is 0.
  struct LagBias {
    const float* data;
    int64_t head;
    int first, width;
    __device__ const float* of(int h) const { return data + h * head; }
  } lag_bias;
  Scores dense;  // the dense bias; none if null
  struct Mask {
    const uint8_t* padding;  // [B, N]; none if null
    int causal, window, block;
  } mask;
  struct Scale {
    float score, log2e, inverse;  // scale, scale · log₂ e and 1 / scale
  } scale;
  struct Dropout {
    uint32_t below;  // 0: no dropout
    float keep_scale;
    DrawKey key;
  } dropout;
  /// What forward writes and backward reads.
  struct Results {
    HeadRows<void> out, rest;  // rest: in bf16, what rounding took off the output
    float* sums;               // [B, H, M]
    float* inverse;            // [B, H, M], in f32: 1 / Σ weights
  } results;
  /// −Σ out ∘ grad [B, H, M] and its operands.
  struct Delta {
    HeadRows<const void> out, grad;
    float* data;
  } delta;
  struct Gradients {
    HeadRows<void> q, k, v, p;
    float *table, *value_table, *lag_bias;  // [segments, H, R, D], [… R, Dv], [segments, H, width]
    Scores dense;                           // f32
    float* key_bias;                        // [B, H, N]: of a bias that all queries share
  } gradients;
  struct Grid {
    int low_lag, high_lag, segments, pieces;  // attention_lags
    int first_unit, unit_step;                // entries and heads of attention_queries
  } grid;

  /// Entry, head and key head of one of the batch's heads; not kept in registers.
  struct Place {
    int b, h, kh;
  };
  __device__ Place place(int unit) const {
    const uint32_t u = uint32_t(tile::fresh(unit)), b = sizes.by_heads.quotient(u),
                   h = u - b * uint32_t(sizes.heads);
    return {int(b), int(h), int(sizes.by_group.quotient(h))};
  }
  /// Keys first_key … end_key − 1 are what a query sees but for padding.
  __device__ int first_key(int position) const {
    if (mask.window > 0) return max(0, position - mask.window + 1);
    if (mask.block > 0) return max(0, (position / mask.block - 1) * mask.block);
    return 0;
  }
  /// Whether a query may not see key j, as it is too far before its position.
  __device__ bool begins_after(int j, int position) const {
    return mask.window > 0 ? j <= position - mask.window
                           : mask.block > 0 && j < position - mask.block;
  }
  __device__ int end_key(int position) const {
    return mask.causal ? min(position + 1, sizes.n) : sizes.n;
  }
  /// Positions from here on see no key up to `key`.
  __device__ int end_position(int last_key) const {
    if (mask.window > 0) return min(sizes.n, last_key + mask.window);
    if (mask.block > 0) return min(sizes.n, (last_key / mask.block + 2) * mask.block);
    return sizes.n;
  }
  /// The end of the keys that the queries i … i + count − 1 see; 0 where none of them is there.
  __device__ int end_of(int i, int count) const {
    return i < sizes.m ? end_key(min(i + count, sizes.m) - 1 + sizes.shift) : 0;
  }
  __device__ bool hidden(int b, int j) const {
    return j < 0 || j >= sizes.n || (mask.padding && mask.padding[int64_t(b) * sizes.n + j]);
  }
  /// Whether lags say anything of scores.
  __device__ bool lagged() const { return table.count > 0 || lag_bias.width > 0; }

  /// Adds the dense bias, over the scale, to scores as each_score has them.
  template <int Parts, bool Turned, int Slope = 0, int Slabs, int Tiles>
  __device__ void add_dense(float (&s)[Slabs][Tiles][4], int b, int h, int i, int j) const {
    if (!dense.data) return;
    using T = std::conditional_t<Parts == 1, BFloat16, float>;
    const T* const from = dense.of<const T>(b, h);
    each_score<Turned, Slope>(s, i, j, [&](int query, int key, float& x) {
      if (query < sizes.m && key >= 0 && key < sizes.n)
        x += cast<float>(from[query * dense.query + key * dense.key]) * scale.inverse;
    });
  }

  /// Puts `nothing` where a query does not see a key, of slabs of 16 queries whose first stands at
  /// `position` and tiles of 8 keys from j0 on.
  template <int Tiles, int Slabs>
  __device__ void hide_keys(float (&s)[Slabs][Tiles][4], int b, int j0, int position,
                            float nothing) const {
    const int lane = threadIdx.x % 32, first = j0 + 2 * (lane % 4);
    uint32_t padded = 0;
    if (mask.padding) {
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

/// Whether relative positions have rows, and whether queries of their own meet these; every: all
/// that a call may have, also rows of values and a dense bias.
enum class Positions { none, shared, apart, every };
template <Positions Of>
using At = std::integral_constant<Positions, Of>;
/// f(At<positions of the call>()): each launcher's choice among its kernels.
template <class F>
void with_positions(const AttentionArgs& a, const F& f) {
  if (a.value_table.count > 0 || a.dense.data)
    f(At<Positions::every>());
  else if (!a.table.rows.data)
    f(At<Positions::none>());
  else if (a.operands.p.data == a.operands.q.data)
    f(At<Positions::shared>());
  else
    f(At<Positions::apart>());
}

/// What the shapes of all kernels begin with; row: bytes of one.
template <int D, int Parts, int Warps, Positions Of>
struct AttentionShape {
  static constexpr bool Every = Of == Positions::every, Table = Of != Positions::none;
  static constexpr bool Apart = Every || Of == Positions::apart;
  static constexpr int numbers = D, parts = Parts, threads = 32 * Warps, row = Parts * D * 2;
};

/// Begins to copy what lags `lag` … lag + Count − 1 have into the rings of shape S: rows, rows of
/// values and biases.
template <class S, int Count>
__device__ inline void load_lags(const AttentionArgs& a, uint32_t base, int unit, int lag,
                                 bool biased) {
  const int h = a.place(unit).h;
  if constexpr (S::Table) {
    tile::load_rows<S::numbers, S::threads, Count, S::parts, S::ring>(
        base + S::r, a.table.rows.source(0, h), lag + a.table.zero_row, a.table.count,
        lag & (S::ring - 1));
  }
  if constexpr (S::Every) {
    tile::load_rows<S::numbers, S::threads, Count, S::parts, S::ring>(
        base + S::values, a.value_table.rows.source(0, h), lag + a.value_table.zero_row,
        a.value_table.count, lag & (S::ring - 1));
  }
  if (biased)
    tile::load_line<S::threads, Count, S::ring>(base + S::bias, a.lag_bias.of(h),
                                                lag - a.lag_bias.first, a.lag_bias.width,
                                                lag & (S::ring - 1));
}

/// Begins to copy Count keys and their values to the first or second place, in turns;
/// j: a multiple of Count.
template <class S, int Count>
__device__ inline void load_keys(const AttentionArgs& a, uint32_t base, int unit, int j) {
  const auto [b, h, kh] = a.place(unit);
  base += (j / Count & 1) * S::tile;
  tile::load_rows<S::numbers, S::threads, Count, S::parts>(base + S::k, a.operands.k.source(b, kh),
                                                           j, a.sizes.n);
  tile::load_rows<S::numbers, S::threads, Count, S::parts>(base + S::v, a.operands.v.source(b, kh),
                                                           j, a.sizes.n);
}

/// The same of S::BQ queries, with their outputs' gradients, sums and deltas.
template <class S>
__device__ inline void load_queries(const AttentionArgs& a, uint32_t base, int unit, int i,
                                    int half) {
  const auto [b, h, kh] = a.place(unit);
  const int64_t line = int64_t(unit) * a.sizes.m;
  const uint32_t to = base + half * S::tile, numbers = base + S::stats + half * 2 * S::BQ * 4;
  const auto rows = [&, b = b, h = h](int area, const HeadRows<const void>& from) {
    tile::load_rows<S::numbers, S::threads, S::BQ, S::parts>(to + area, from.source(b, h), i,
                                                             a.sizes.m);
  };
  rows(S::q, a.operands.q);
  rows(S::g, a.operands.g);
  if constexpr (S::Apart) rows(S::p, a.operands.p);
  tile::load_line<S::threads, S::BQ>(numbers, a.results.sums + line, i, a.sizes.m);
  tile::load_line<S::threads, S::BQ>(numbers + S::BQ * 4, a.delta.data + line, i, a.sizes.m);
}

/// Delta of a warp's Count queries from i on, −Σ o ∘ g, in f32 over the sum of weights: to where
/// keys and lags look for it, and to `own`.
template <int D, int Parts, int Count>
__device__ inline void make_delta(const AttentionArgs& a, int unit, int i, float* own) {
  using T = std::conditional_t<Parts == 1, BFloat16, float>;
  constexpr int V = pack_size<T>, lanes = D / V;
  const auto [b, h, kh] = a.place(unit);
  const int x = int(threadIdx.x) % lanes;
#pragma unroll 4
  for (int r = int(threadIdx.x) % 32 / lanes; r < Count; r += 32 / lanes) {
    float sum = 0;
    if (i + r < a.sizes.m && x * V < a.delta.grad.chunks * 8) {
      using Numbers = Pack<T, V>;
      const auto o =
          *reinterpret_cast<const Numbers*>(a.delta.out.at<const T>(b, h, i + r) + V * x);
      const auto g =
          *reinterpret_cast<const Numbers*>(a.delta.grad.at<const T>(b, h, i + r) + V * x);
#pragma unroll
      for (int e = 0; e < V; ++e) sum += cast<float>(o.v[e]) * cast<float>(g.v[e]);
      if constexpr (Parts == 1) {
        const auto low = *reinterpret_cast<const Numbers*>(
            a.results.rest.at<const BFloat16>(b, h, i + r) + V * x);
#pragma unroll
        for (int e = 0; e < V; ++e) sum += cast<float>(low.v[e]) * cast<float>(g.v[e]);
      }
    }
#pragma unroll
    for (int lane = lanes / 2; lane > 0; lane /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, lane);
    if (x != 0) continue;
    if constexpr (Parts > 1)
      if (i + r < a.sizes.m) sum *= a.results.inverse[int64_t(unit) * a.sizes.m + i + r];
    own[r] = -sum;
    if (i + r < a.sizes.m) a.delta.data[int64_t(unit) * a.sizes.m + i + r] = -sum;
  }
}

/// The largest exponent of a weight: what is taken off may be 8 less than the largest, and is
/// rounded up. Backward's weights of bf16 are over their sum, those of f32 as forward's are.
template <int Parts, bool Backward>
constexpr float most_exponent = Parts == 1 && Backward ? 0 : 9;

/// 2^(score · scale2 − less). With a dense bias, which may be as good as −∞ for all keys, no more
/// than 2^most: what is left of such scores is the rounding of what is taken off.
template <bool Every>
__device__ inline float weight(float score, float scale2, float less, float most) {
  const float x = fmaf(score, scale2, -less);
  return ptx::ex2(Every ? fminf(x, most) : x);
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
    bits |= uint32_t(kept(key, uint64_t(row + query) * uint64_t(a.sizes.n) + uint64_t(k),
                          a.dropout.below))
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
    bits |= uint32_t(kept(key, uint64_t(row + i + column) * uint64_t(a.sizes.n) + uint64_t(k),
                          a.dropout.below))
            << x;
  }
  return bits;
}

/// Row i of a result, if below the limit, as a quad of lanes has it in tiles of a product:
/// number(x, e), of tile x the lane's first or second. bf16 leaves in pieces of 16 bytes, and what
/// its rounding takes off goes to `rest`, where given.
template <int D, int Parts, class Number>
__device__ inline void put_row(const HeadRows<void>& to, int b, int h, int i, int limit,
                               const Number& number, const HeadRows<void>& rest = {}) {
  const int t = tile::fresh(threadIdx.x) % 4;
#pragma unroll
  for (int x = 0; x < D / 8; x += 4) {
    if constexpr (Parts == 1) {
      uint32_t r[4], low[4];
#pragma unroll
      for (int y = 0; y < 4; ++y) {
        float first = number(x + y, 0), second = number(x + y, 1);
        r[y] = tile::pack_pair(first, second);
        low[y] = ptx::cvt_pack(first, second);
      }
      const auto put = [&](const HeadRows<void>& rows, uint32_t(&four)[4]) {
        tile::turn_quad(four, t);
        if (i < limit && x + t < to.chunks)
          *reinterpret_cast<uint4*>(rows.at<BFloat16>(b, h, i) + (x + t) * 8) = {four[0], four[1],
                                                                                 four[2], four[3]};
      };
      put(to, r);
      if (rest.data) put(rest, low);
    } else {
#pragma unroll
      for (int y = x; y < x + 4; ++y)
        if (i < limit && y < to.chunks)
          *reinterpret_cast<float2*>(to.at<float>(b, h, i) + y * 8 + 2 * t) = {number(y, 0),
                                                                               number(y, 1)};
    }
  }
}

/// An operand as kernels read it; what is made for it is kept. Of f32 rows times `factors`, one for
/// each of [B, H, L], where given.
HeadRows<const void> attention_operand(const Tensor& x, Tensors& kept,
                                       const float* factors = nullptr);
/// A dense bias or its gradient, [B or 1, H or 1, M or 1, N or 1].
Scores scores_of(const Tensor& x);
/// The arguments that forward and backward have in common; operands of f32 as they are without
/// `cut`.
AttentionArgs attention_args(const AttentionCall& call, Tensors& kept, bool cut = true);

// Launchers of the backward kernels, each in the file of its name. D: 32, 64 or 128.
void launch_attention_keys(const AttentionArgs& a, int d, int device);
void launch_attention_queries(const AttentionArgs& a, int d, int device);
void launch_attention_lags(const AttentionArgs& a, int d, int device);
/// About how many lags a block of the last one serves: 64 to 192.
constexpr int lags_per_block = 128;

}  // namespace stretto::cuda
