// Shared by the kernels of linear attention with decay: a block's place in the work, decays of a
// chunk, products of a chunk, and the delta rule's triangular system.
//
// A block of 8 warps has V of the Dv columns of a head, a part, and processes chunks of C = 64
// positions one after the other. All operands and the state S [F, V] are f32 in shared memory; a
// product is three products of tf32 values (SplitFragment in fragments.cuh). Of every result of 64
// rows, warp w has rows 16 (w % 4) … and the left or right half of the columns, w / 4:
//
//                 left      right
//              +---------+---------+
//     rows  0  | warp 0  | warp 4  |      matrices of two positions [C, C] are lower triangles:
//              +---------+---------+      products skip the blocks of 16 × 16 above the diagonal
//          16  | warp 1  | warp 5  |
//              +---------+---------+      S and its gradient have F rows: 64 at a time
//          32  | warp 2  | warp 6  |
//              +---------+---------+
//          48  | warp 3  | warp 7  |
//              +---------+---------+
//
// The equations are in ops/attention/gated_linear_attention_composed.cpp, the gradients in
// ops/attention/gated_chunks.h. Every sum has one owner and one order.
#pragma once

#include "cuda/attention/gated_linear_attention.h"
#include "cuda/attention/linear_attention_chunks.cuh"

namespace stretto::cuda::gated {

using linear::chunk, linear::threads, linear::Place, linear::copy_chunk;
using tile::columns_of, tile::packed, tile::quad_sum, tile::rows_of, tile::Side,
    tile::SplitFragment, tile::store_block, tile::Tile;
static_assert(chunk == gated_linear_chunk);

/// Features F and columns V that a kernel is compiled for, with or without the delta rule.
template <int F, int V, bool Delta>
struct Kind {
  static constexpr int features = F, values = V;
  static constexpr bool delta = Delta;
};

struct Args {
  HeadRows<const float> q, k, v, g;  // g: gradient of y
  HeadRows<float> y;
  const float *log_decay, *beta;  // [B, H, N]; per feature, log_decay is [B, H, N, F]
  float *state, *states;          // [B, H, F, Dv], and before each chunk [B, H, chunks, F, Dv]
  struct Gradients {
    HeadRows<float> q, k, v;
    float *log_decay, *beta;  // [B, H P, N] or [B, H P, N, F]; [B, H P, N]
  } to;
  int heads, per_q, per_k, per_v;  // per_q: heads of H per head of q
  int n, f, dv, parts;
  float scale;
};

/// A block's head and part of the columns.
template <class K>
struct Unit {
  int b, h, part;
  int64_t head, summand;  // b H + h, and that with parts
  int first_column, width;

  __device__ explicit Unit(const Args& a)
      : b(int(blockIdx.x) / (a.heads * a.parts)),
        h(int(blockIdx.x) / a.parts % a.heads),
        part(int(blockIdx.x) % a.parts),
        head(int64_t(b) * a.heads + h),
        summand(blockIdx.x),
        first_column(part * K::values),
        width(min(K::values, a.dv - first_column)) {}
  __device__ int chunks(const Args& a) const { return (a.n + chunk - 1) / chunk; }
  /// The block's columns of a tensor [B, ·, N, Dv].
  template <class T>
  __device__ HeadRows<T> columns(HeadRows<T> x) const {
    x.data += first_column;
    return x;
  }
  /// The block's columns of a state, in memory with rows of Dv.
  __device__ float* of(float* states, const Args& a, int64_t index) const {
    return states + index * a.f * a.dv + first_column;
  }
};

/// Sums of 64 × N elements, a warp's 16 rows and half of the columns.
template <int N>
using Sums = float[N / 32][2][4];

/// The first column of block c of a warp's half of N columns.
template <int N>
__device__ inline int block_column(const Place& p, int c) {
  return N / 2 * p.warp_column + 16 * c;
}
/// Calls f(sum, row, column) for the thread's sums.
template <int C, class F>
__device__ __forceinline__ void each(float (&d)[C][2][4], const Place& p, const F& f) {
#pragma unroll
  for (int c = 0; c < C; ++c)
#pragma unroll
    for (int i = 0; i < 8; ++i)
      f(d[c][i / 4][i % 4], p.chunk_row(i % 4 / 2),
        block_column<32 * C>(p, c) + i / 4 * 8 + p.column + i % 2);
}

/// Two neighboring elements of a tile.
template <class Rows>
__device__ __forceinline__ float2& two(const Rows& tile, int row, int column) {
  return *reinterpret_cast<float2*>(tile.at(row, column));
}
/// Calls f(two sums, row, column) for the thread's pairs of neighboring sums.
template <int C, class F>
__device__ __forceinline__ void each_pair(float (&d)[C][2][4], const Place& p, const F& f) {
#pragma unroll
  for (int c = 0; c < C; ++c)
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      float &first = d[c][i / 2][i % 2 * 2], &second = d[c][i / 2][i % 2 * 2 + 1];
      float2 x = {first, second};
      f(x, p.chunk_row(i % 2), block_column<32 * C>(p, c) + i / 2 * 8 + p.column);
      first = x.x, second = x.y;
    }
}
/// to = a to + x
__device__ __forceinline__ void scale_and_add(float2& to, float a, float2 x) {
  const float2 y = to;
  to = {a * y.x + x.x, a * y.y + x.y};
}

// Operands of products: functions of the first position k of the 16 that are summed over.

/// Rows of the tile: those of the warp.
template <class Rows>
__device__ auto left_rows(const Rows& t, const Place& p) {
  return [&t, &p](int k) { return rows_of<Side::left>(t, 16 * p.warp_row, k); };
}
/// Columns of the tile, from `first` on: those of the warp.
template <class Rows>
__device__ auto left_columns(const Rows& t, const Place& p, int first = 0) {
  return [&t, &p, first](int k) { return columns_of<Side::left>(t, k, first + 16 * p.warp_row); };
}
/// The same with row k of the tile multiplied by factors[k].
template <class Rows>
__device__ auto scaled_columns(const Rows& t, const Place& p, int first, const float* factors) {
  return [&t, &p, first, factors](int k) {
    SplitFragment x = columns_of<Side::left>(t, k, first + 16 * p.warp_row);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const float2 two = x.values(i / 2, i % 2),
                   by = *reinterpret_cast<const float2*>(factors + k + 8 * (i % 2) + p.column);
      x.set(i / 2, i % 2, {two.x * by.x, two.y * by.y});
    }
    return x;
  };
}
/// The tile as it is, or transposed, from column or row `first` on.
template <class Rows>
__device__ auto right(const Rows& t, int first = 0) {
  return [&t, first](int k, int column) { return columns_of<Side::right>(t, k, first + column); };
}
template <class Rows>
__device__ auto right_transposed(const Rows& t, int first = 0) {
  return [&t, first](int k, int column) { return rows_of<Side::right>(t, first + column, k); };
}

/// d += left · right, summed over blocks begin … end − 1 of 16.
template <int C, class L, class R>
__device__ __forceinline__ void multiply(float (&d)[C][2][4], const Place& p, int begin, int end,
                                         const L& left, const R& right) {
#pragma unroll 1
  for (int x = begin; x < end; ++x) {
    const SplitFragment l = left(16 * x);
#pragma unroll
    for (int c = 0; c < C; ++c) tile::multiply(d[c], l, right(16 * x, block_column<32 * C>(p, c)));
  }
}
template <class Rows, int C>
__device__ __forceinline__ void store(const Rows& to, const Place& p, const float (&d)[C][2][4]) {
#pragma unroll
  for (int c = 0; c < C; ++c) store_block(to, 16 * p.warp_row, block_column<32 * C>(p, c), d[c]);
}
/// Stores the sums to rows first … of a head in memory, within [n, width].
template <int C>
__device__ __forceinline__ void store(const HeadRows<float>& to, int b, int h, int first, int n,
                                      int width, const Place& p, const float (&d)[C][2][4]) {
#pragma unroll
  for (int c = 0; c < C; ++c)
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int row = first + p.chunk_row(i / 2),
                at = block_column<32 * C>(p, c) + i % 2 * 8 + p.column;
      if (row < n && at < width)
        *reinterpret_cast<float2*>(to.at(b, h, row) + at) = {d[c][i % 2][i / 2 * 2],
                                                             d[c][i % 2][i / 2 * 2 + 1]};
    }
}

/// The decays of a chunk, in shared memory.
struct Decays {
  double* sums;               // [C], log α_0 + … + log α_i
  float *start, *end, *beta;  // [C]: e^{D_i}, e^{D_j} to the end, β
  static constexpr int bytes = chunk * (8 + 3 * 4);

  __device__ explicit Decays(char* at)
      : sums(reinterpret_cast<double*>(at)),
        start(reinterpret_cast<float*>(at + chunk * 8)),
        end(start + chunk),
        beta(end + chunk) {}

  /// Loads n positions; behind them decays are 1 and β is 0. Below e^−800 a decay is 0 in f32.
  __device__ void load(const float* log_decay, const float* betas, int n) const {
    if (threadIdx.x >= 32) return;
    const int lane = int(threadIdx.x);
    double x[2];
    float b[2];
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int at = 2 * lane + i;
      const float g = at < n ? log_decay[at] : 0;
      x[i] = g < -800 ? -800 : g;
      b[i] = betas && at < n ? betas[at] : 0;
    }
    double sum = x[0] + x[1];
#pragma unroll
    for (int by = 1; by < 32; by *= 2) {
      const double before = __shfl_up_sync(0xffffffffu, sum, by);
      if (lane >= by) sum += before;
    }
    const double all = __shfl_sync(0xffffffffu, sum, 31), first = sum - x[1];
    reinterpret_cast<double2*>(sums)[lane] = {first, sum};
    reinterpret_cast<float2*>(start)[lane] = {expf(float(first)), expf(float(sum))};
    reinterpret_cast<float2*>(end)[lane] = {expf(float(all - first)), expf(float(all - sum))};
    reinterpret_cast<float2*>(beta)[lane] = {b[0], b[1]};
  }
  /// e^{D_ij}, the decay from position j to a later one i.
  __device__ float between(int i, int j) const { return expf(float(sums[i] - sums[j])); }
  __device__ float all() const { return start[chunk - 1]; }
};

/// (I + β M)⁻¹ β of a block of 16 × 16 on the diagonal of M, rows `first` …, to columns 0 … 15 of
/// `to`, by a warp whose lane c % 16 computes column c.
template <class Square, class Blocks>
__device__ __forceinline__ void invert_block(const Square& m, const Blocks& to, const float* beta,
                                             int first) {
  const int c = tile::lane_index() % 16;
  float x[16];
#pragma unroll
  for (int i = 0; i < 16; ++i) {
    float sum = i == c ? 1.f : 0.f;
#pragma unroll
    for (int j = 0; j < i; ++j)
      sum -= *reinterpret_cast<const float*>(m.at(first + i, first + j)) * x[j];
    x[i] = beta[first + i] * sum;
  }
  if (tile::lane_index() < 16)
#pragma unroll
    for (int i = 0; i < 16; ++i) *reinterpret_cast<float*>(to.at(first + i, c)) = x[i];
}

/// The tiles of the delta rule's system: M, and T = (I + β M)⁻¹ β in blocks of 16 × 16 on the
/// diagonal.
struct System {
  using Square = Tile<float, 64, chunk>;
  using Blocks = Tile<float, 32, chunk>;  // columns 0 … 15 are used
  static constexpr int bytes = Square::bytes + Blocks::bytes;
  Square m;
  Blocks inverse;
  __device__ explicit System(char* at) : m{at}, inverse{at + Square::bytes} {}

  /// Inverts the blocks, one per warp.
  __device__ void invert(const Place& p, const float* beta) const {
    if (p.warp_column == 0) invert_block(m, inverse, beta, 16 * p.warp_row);
  }
};

/// M [C, C] and the right-hand side r' = v − e^{D_i} k S, which replaces v.
template <class Wide, class Narrow, class StateTile>
__device__ __forceinline__ void begin_system(const System& to, const Place& p, const Wide& k,
                                             const Narrow& v, const StateTile& s,
                                             const Decays& decays) {
  Sums<chunk> m = {};
  multiply(m, p, 0, Wide::columns / 16, left_rows(k, p), right_transposed(k));
  each(m, p, [&](float& x, int i, int j) { x = i > j ? x * decays.between(i, j) : 0; });
  store(to.m, p, m);
  Sums<Narrow::columns> r = {};
  multiply(r, p, 0, Wide::columns / 16, left_rows(k, p), right(s));
  each_pair(r, p, [&](float2& x, int i, int j) {
    float2& at = two(v, i, j);
    const float2 value = at;
    at = {value.x - decays.start[i] * x.x, value.y - decays.start[i] * x.y};
  });
}

/// A warp's 16 columns of the system, from `column` on: no other warp reads what it writes.
struct ColumnSolver {
  const System& system;
  const int column;

  template <class Rows>
  __device__ void load(float (&d)[2][4], const Rows& from, int row) const {
#pragma unroll
    for (int i = 0; i < 8; ++i) d[i / 4][i % 4] = 0;
    tile::add_block(d, from, row, column);
  }
  /// d −= left · rows `row` … of x.
  template <class Rows>
  __device__ void subtract(float (&d)[2][4], const SplitFragment& left, const Rows& x,
                           int row) const {
    float sum[2][4] = {};
    tile::multiply(sum, left, columns_of<Side::right>(x, row, column));
#pragma unroll
    for (int i = 0; i < 8; ++i) d[i / 4][i % 4] -= sum[i / 4][i % 4];
  }
  /// to = left · rows `row` … of x, which `to` is too if in_place.
  template <bool in_place, class Rows>
  __device__ void transform(const SplitFragment& left, const Rows& x, const Rows& to,
                            int row) const {
    float d[2][4] = {};
    tile::multiply(d, left, columns_of<Side::right>(x, row, column));
    if constexpr (in_place) __syncwarp();
    store_block(to, row, column, d);
    __syncwarp();
  }
  __device__ SplitFragment m(int i, int j) const {
    return rows_of<Side::left>(system.m, 16 * i, 16 * j);
  }
  __device__ SplitFragment m_transposed(int i, int j) const {
    return columns_of<Side::left>(system.m, 16 * j, 16 * i);
  }

  /// u from r', block by block. If in_place, r is u, else r has v − e^{D_i} k S − M u afterwards.
  template <bool in_place, class Rows>
  __device__ void solve(const Rows& r, const Rows& u) const {
#pragma unroll 1
    for (int i = 0; i < chunk / 16; ++i) {
      float d[2][4];
      load(d, r, 16 * i);
#pragma unroll 1
      for (int j = 0; j < i; ++j) subtract(d, m(i, j), u, 16 * j);
      store_block(r, 16 * i, column, d);
      __syncwarp();
      transform<in_place>(rows_of<Side::left>(system.inverse, 16 * i, 0), r, u, 16 * i);
      if constexpr (in_place) continue;
      subtract(d, m(i, i), u, 16 * i);
      store_block(r, 16 * i, column, d);
    }
  }
};

/// Copies the block's columns of a state between memory and shared memory.
template <class K, class StateTile, class F>
__device__ __forceinline__ void each_of_state(const StateTile& s, const Args& a, const F& f) {
#pragma unroll 1
  for (int i = int(threadIdx.x); i < K::features * K::values; i += int(blockDim.x)) {
    const int row = i / K::values, column = i % K::values;
    f(*reinterpret_cast<float*>(s.at(row, column)), row, column, int64_t(row) * a.dv + column);
  }
}
template <class K, class StateTile>
__device__ void load_state(const StateTile& s, const Unit<K>& u, const Args& a, const float* from) {
  each_of_state<K>(s, a, [&](float& x, int row, int column, int64_t at) {
    x = row < a.f && column < u.width ? from[at] : 0;
  });
}
template <class K, class StateTile>
__device__ void store_state(const StateTile& s, const Unit<K>& u, const Args& a, float* to) {
  each_of_state<K>(s, a, [&](const float& x, int row, int column, int64_t at) {
    if (row < a.f && column < u.width) to[at] = x;
  });
}

/// The kernels for decays per feature (gated_features.cuh): log_decay and its gradient have a
/// number per feature.
void forward_features(const Args& a, unsigned blocks, int device);
void backward_features(const Args& a, unsigned blocks, int device);

/// Returns the inputs with rows that kernels can copy, 16-byte aligned.
GatedLinearAttentionInputs aligned(const GatedLinearAttentionInputs& in);
/// Arguments that both passes have, for aligned inputs.
Args args_of(const GatedLinearAttentionInputs& in, const Tensor& state);

/// Calls go<Kind>() for F features; gated_linear_parts() has the same columns per part.
template <class Go>
void with_kind(int64_t f, bool delta, const Go& go) {
  if (f <= 64)
    delta ? go.template operator()<Kind<64, 64, true>>()
          : go.template operator()<Kind<64, 64, false>>();
  else
    delta ? go.template operator()<Kind<128, 32, true>>()
          : go.template operator()<Kind<128, 32, false>>();
}

}  // namespace stretto::cuda::gated
