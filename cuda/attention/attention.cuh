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

struct AttentionArgs {
  HeadRows<const BFloat16> q, k, v, p, table, g;  // table: [H or 1, R, D] as one batch entry
  HeadRows<BFloat16> out, dq, dk, dv, dp;         // or f32, where there are three parts;
  HeadRows<const BFloat16> whole_out, whole_g;    // so are these
  HeadRows<BFloat16> rest;  // of bf16 alone: what rounding took off the output
  const float* bias;        // [H or 1, width], over the scale; none where the width is 0
  const uint8_t* padding;   // [B, N]; null: none
  float *sums, *delta;      // [B, H, M]; the delta is negative
  float* inverse;           // [B, H, M], of f32 alone: 1 / Σ weights; null: not wanted
  float *dtable, *dbias;    // [segments, H, rows, D], [segments, H, width]
  int64_t bias_head;
  Divider by_heads, by_group;  // heads, per_group
  int parts;                   // 1: bf16; 3: f32
  int batch, heads, per_group, m, n, shift;
  int rows, zero_row, first, width;
  int causal, window, block;
  int low_lag, high_lag, segments, pieces;  // of the kernel that walks lags
  float scale, scale2;                      // scale2 = scale · log₂ e
  uint32_t drop_below;                      // 0: nothing is dropped
  float keep_scale;
  DrawKey key;
  // What only the kernels of `every` have.
  HeadRows<const BFloat16> values;  // [H or 1, R, Dv] as one batch entry
  float* dvalues;                   // [segments, H, R, Dv]
  int value_rows, value_zero_row;
  Scores dense, ddense;  // the dense bias, none where null, and its gradient in f32
  float* dkeys;          // [B, H, N]: that of a bias that all queries share
  float over_scale;
  int first_unit, unit_step;  // of entries and heads that attention_queries goes through

  /// Entry, head and key head of one of the batch's heads; not kept in registers.
  struct Place {
    int b, h, kh;
  };
  __device__ Place place(int unit) const {
    const uint32_t u = uint32_t(tile::fresh(unit)), b = by_heads.quotient(u),
                   h = u - b * uint32_t(heads);
    return {int(b), int(h), int(by_group.quotient(h))};
  }
  /// Keys first_key … end_key − 1 are what a query sees but for padding.
  __device__ int first_key(int position) const {
    if (window > 0) return max(0, position - window + 1);
    if (block > 0) return max(0, (position / block - 1) * block);
    return 0;
  }
  /// Whether a query may not see key j, as it is too far before its position.
  __device__ bool begins_after(int j, int position) const {
    return window > 0 ? j <= position - window : block > 0 && j < position - block;
  }
  __device__ int end_key(int position) const { return causal ? min(position + 1, n) : n; }
  /// Positions from here on see no key up to `key`.
  __device__ int end_position(int last_key) const {
    if (window > 0) return min(n, last_key + window);
    if (block > 0) return min(n, (last_key / block + 2) * block);
    return n;
  }
  /// The end of the keys that the queries i … i + count − 1 see; 0 where none of them is there.
  __device__ int end_of(int i, int count) const {
    return i < m ? end_key(min(i + count, m) - 1 + shift) : 0;
  }
  __device__ bool hidden(int b, int j) const {
    return j < 0 || j >= n || (padding && padding[int64_t(b) * n + j]);
  }
  __device__ const float* bias_of(int h) const { return bias + h * bias_head; }
  /// Whether lags say anything of scores.
  __device__ bool lagged() const { return rows > 0 || width > 0; }

  /// Adds the dense bias, over the scale, to scores as each_score has them.
  template <int Parts, bool Turned, int Slope = 0, int Slabs, int Tiles>
  __device__ void add_dense(float (&s)[Slabs][Tiles][4], int b, int h, int i, int j) const {
    if (!dense.data) return;
    using T = std::conditional_t<Parts == 1, BFloat16, float>;
    const T* const from = dense.of<const T>(b, h);
    each_score<Turned, Slope>(s, i, j, [&](int query, int key, float& x) {
      if (query < m && key >= 0 && key < n)
        x += cast<float>(from[query * dense.query + key * dense.key]) * over_scale;
    });
  }

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

/// Whether relative positions have rows, and whether queries of their own meet these; every: all
/// that a call may have, also rows of values and a dense bias.
enum class Positions { none, shared, apart, every };
template <Positions Of>
using At = std::integral_constant<Positions, Of>;
/// f(At<positions of the call>()): each launcher's choice among its kernels.
template <class F>
void with_positions(const AttentionArgs& a, const F& f) {
  if (a.value_rows > 0 || a.dense.data)
    f(At<Positions::every>());
  else if (!a.table.data)
    f(At<Positions::none>());
  else if (a.p.data == a.q.data)
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
        base + S::r, a.table.source(0, h), lag + a.zero_row, a.rows, lag & (S::ring - 1));
  }
  if constexpr (S::Every) {
    tile::load_rows<S::numbers, S::threads, Count, S::parts, S::ring>(
        base + S::values, a.values.source(0, h), lag + a.value_zero_row, a.value_rows,
        lag & (S::ring - 1));
  }
  if (biased)
    tile::load_line<S::threads, Count, S::ring>(base + S::bias, a.bias_of(h), lag - a.first,
                                                a.width, lag & (S::ring - 1));
}

/// Begins to copy Count keys and their values to the first or second place, in turns;
/// j: a multiple of Count.
template <class S, int Count>
__device__ inline void load_keys(const AttentionArgs& a, uint32_t base, int unit, int j) {
  const auto [b, h, kh] = a.place(unit);
  base += (j / Count & 1) * S::tile;
  tile::load_rows<S::numbers, S::threads, Count, S::parts>(base + S::k, a.k.source(b, kh), j, a.n);
  tile::load_rows<S::numbers, S::threads, Count, S::parts>(base + S::v, a.v.source(b, kh), j, a.n);
}

/// The same of S::BQ queries, with their outputs' gradients, sums and deltas.
template <class S>
__device__ inline void load_queries(const AttentionArgs& a, uint32_t base, int unit, int i,
                                    int half) {
  const auto [b, h, kh] = a.place(unit);
  const int64_t line = int64_t(unit) * a.m;
  const uint32_t to = base + half * S::tile, numbers = base + S::stats + half * 2 * S::BQ * 4;
  const auto rows = [&, b = b, h = h](int area, const HeadRows<const BFloat16>& from) {
    tile::load_rows<S::numbers, S::threads, S::BQ, S::parts>(to + area, from.source(b, h), i, a.m);
  };
  rows(S::q, a.q);
  rows(S::g, a.g);
  if constexpr (S::Apart) rows(S::p, a.p);
  tile::load_line<S::threads, S::BQ>(numbers, a.sums + line, i, a.m);
  tile::load_line<S::threads, S::BQ>(numbers + S::BQ * 4, a.delta + line, i, a.m);
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
    if (i + r < a.m && x * V < a.whole_g.chunks * 8) {
      using Numbers = Pack<T, V>;
      const auto o =
          *reinterpret_cast<const Numbers*>(a.whole_out.at<const T>(b, h, i + r) + V * x);
      const auto g = *reinterpret_cast<const Numbers*>(a.whole_g.at<const T>(b, h, i + r) + V * x);
#pragma unroll
      for (int e = 0; e < V; ++e) sum += cast<float>(o.v[e]) * cast<float>(g.v[e]);
      if constexpr (Parts == 1) {
        const auto low = *reinterpret_cast<const Numbers*>(a.rest.at(b, h, i + r) + V * x);
#pragma unroll
        for (int e = 0; e < V; ++e) sum += cast<float>(low.v[e]) * cast<float>(g.v[e]);
      }
    }
#pragma unroll
    for (int lane = lanes / 2; lane > 0; lane /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, lane);
    if (x != 0) continue;
    if constexpr (Parts > 1)
      if (i + r < a.m) sum *= a.inverse[int64_t(unit) * a.m + i + r];
    own[r] = -sum;
    if (i + r < a.m) a.delta[int64_t(unit) * a.m + i + r] = -sum;
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

/// Row i of a result, if below the limit, as a quad of lanes has it in tiles of a product:
/// number(x, e), of tile x the lane's first or second. bf16 leaves in pieces of 16 bytes, and what
/// its rounding takes off goes to `rest`, where given.
template <int D, int Parts, class Number>
__device__ inline void put_row(const HeadRows<BFloat16>& to, int b, int h, int i, int limit,
                               const Number& number, const HeadRows<BFloat16>& rest = {}) {
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
      const auto put = [&](const HeadRows<BFloat16>& rows, uint32_t(&four)[4]) {
        tile::turn_quad(four, t);
        if (i < limit && x + t < to.chunks)
          *reinterpret_cast<uint4*>(rows.at(b, h, i) + (x + t) * 8) = {four[0], four[1], four[2],
                                                                       four[3]};
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
HeadRows<const BFloat16> attention_operand(const Tensor& x, Tensors& kept,
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

template <class T>
HeadRows<T> head_rows(const Tensor& x) {
  if (!x.defined()) return {};
  const Shape& s = x.strides();
  return {static_cast<T*>(x.raw_data()), s[0], s[1], s[2], 0, int(x.size(3) / 8)};
}

}  // namespace stretto::cuda
