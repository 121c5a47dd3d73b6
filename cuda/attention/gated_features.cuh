// Linear attention with decay per feature: the steps of a group of positions that forward and backward
// share.
//
// A block of 4 warps has V of the Dv columns of a head, as in gated_chunks.cuh, and processes groups
// of 16 positions one after the other. Between two positions of a group every feature has its own
// decay: these products are sums of threads, weighted by products of α. Everything else is a
// product on tensor cores, whose operands are weighted rows:
//
//     q' = scale e^{D_i} q    k' = e^{D_i} k    k" = e^{D_j} k          [16, F]
//     P_ij = scale Σ_f q_i k_j e^{D_ij},  M_ij = Σ_f k_i k_j e^{D_ij}   [16, 16]
//     u = (I + β M)⁻¹ β (v − k' S)                                      [16, V]
//     y = q' S + P u          S = e^D S + k"ᵀ u                         S [F, V]
//
// A warp has 16 of the columns of v, u, y and S: what it reads of them it has written. In the
// backward pass it also has 16 or 32 of the features of g Sᵀ, dr Sᵀ and u dSᵀ. Forward stores S
// before every 64 positions; backward computes that of each group again and visits the groups from
// the last to the first. The equations are in ops/attention/gated_linear_attention_composed.cpp,
// the gradients in ops/attention/gated_chunks.h. Tested against the CPU.
#pragma once

#include "cuda/attention/gated_chunks.cuh"

namespace stretto::cuda::gated {

constexpr int group = 16, feature_threads = 128, groups = chunk / group;

template <class K>
struct FeatureTiles {
  using Wide = Tile<float, K::features, group>;
  using Narrow = Tile<float, K::values, group>;
  using State = Tile<float, K::values, K::features>;
  using Square = Tile<float, 32, group>;  // columns 0 … 15 are used
};

/// The shared memory of both passes: areas one after the other.
template <class K, bool Backward>
struct FeatureMemory : FeatureTiles<K> {
  using typename FeatureTiles<K>::Wide, typename FeatureTiles<K>::Narrow,
      typename FeatureTiles<K>::State, typename FeatureTiles<K>::Square;
  static constexpr int wides = Backward ? 11 : 8, narrows = Backward ? 4 : 2,
                       squares = Backward ? 5 : 3, states = Backward ? groups + 1 : 1;
  static constexpr int narrow_at = wides * Wide::bytes,
                       square_at = narrow_at + narrows * Narrow::bytes,
                       state_at = square_at + squares * Square::bytes,
                       line_at = state_at + states * State::bytes,
                       bytes = line_at + 4 * (group + K::values / 16 * group);
  char* data;

  __device__ Wide wide(int i) const { return {data + i * Wide::bytes}; }
  __device__ Narrow narrow(int i) const { return {data + narrow_at + i * Narrow::bytes}; }
  __device__ Square square(int i) const { return {data + square_at + i * Square::bytes}; }
  __device__ State state(int i) const { return {data + state_at + i * State::bytes}; }
  __device__ float* line() const { return reinterpret_cast<float*>(data + line_at); }
};

template <class Rows>
__device__ __forceinline__ float& at(const Rows& tile, int row, int column) {
  return *reinterpret_cast<float*>(tile.at(row, column));
}
/// Begins to copy 16 rows of a head from `first` on; zeros outside [limit, width].
template <class Rows>
__device__ __forceinline__ void copy_group(const Rows& to, const HeadRows<const float>& x, int b,
                                           int h, int first, int limit, int width) {
  constexpr int packs = Rows::columns / 4;
#pragma unroll 1
  for (int i = int(threadIdx.x); i < group * packs; i += feature_threads) {
    const int row = i / packs, column = i % packs * 4;
    ptx::copy16(ptx::shared_address(to.at(row, column)), x.at(b, h, first + row) + column,
                first + row < limit && column < width);
  }
}
using Block = float[2][4];  // 16 × 16 sums of a warp

/// d += left · columns `column` … of a tile, or of its transpose, summed over Count blocks of 16.
template <int Count, class L, class R>
__device__ __forceinline__ void add_product(Block& d, const L& left, const R& right, int column) {
#pragma unroll 1
  for (int x = 0; x < Count; ++x) tile::multiply(d, left(16 * x), right(16 * x, column));
}
template <class Rows>
__device__ auto all_rows(const Rows& t) {
  return [&t](int k) { return rows_of<Side::left>(t, 0, k); };
}

/// A block's memory and the phases of a group that both passes have.
template <class K, bool Backward>
struct FeatureGroup {
  using M = FeatureMemory<K, Backward>;
  using State = typename M::State;
  static constexpr int F = K::features, V = K::values;
  const Args& a;
  const Unit<K>& unit;
  const M memory;
  const typename M::Wide q, k, alpha, start, end, qs, ks, ke;
  const typename M::Narrow v, u;  // in the backward pass v becomes r
  const typename M::Square p, m, inverse;
  float* const beta;
  const int thread = int(threadIdx.x), column = thread / 32 * 16, row = tile::lane_index() / 4,
            pair = tile::lane_index() % 4 * 2;
  int first = 0;

  __device__ FeatureGroup(const Args& args, const Unit<K>& of, char* data)
      : a(args),
        unit(of),
        memory{{}, data},
        q(memory.wide(0)),
        k(memory.wide(1)),
        alpha(memory.wide(2)),
        start(memory.wide(3)),
        end(memory.wide(4)),
        qs(memory.wide(5)),
        ks(memory.wide(6)),
        ke(memory.wide(7)),
        v(memory.narrow(0)),
        u(memory.narrow(K::delta && Backward ? 1 : 0)),
        p(memory.square(0)),
        m(memory.square(1)),
        inverse(memory.square(2)),
        beta(memory.line()) {}

  __device__ bool has_columns() const { return column < V; }
  __device__ float all(int feature) const { return at(start, group - 1, feature); }
  /// Calls f(sum, row, column) for the sums of a block.
  template <class Go>
  __device__ __forceinline__ void each(Block& d, const Go& f) const {
#pragma unroll
    for (int i = 0; i < 8; ++i) f(d[i / 4][i % 4], row + i % 4 / 2 * 8, i / 4 * 8 + pair + i % 2);
  }

  /// Calls f(two sums, row, column) for its pairs of neighboring sums.
  template <class Go>
  __device__ __forceinline__ void each_pair(const Block& d, const Go& f) const {
#pragma unroll
    for (int i = 0; i < 4; ++i)
      f(float2{d[i / 2][i % 2 * 2], d[i / 2][i % 2 * 2 + 1]}, row + i % 2 * 8, i / 2 * 8 + pair);
  }

  __device__ void load(int at_position) {
    first = at_position;
    copy_group(q, a.q, unit.b, unit.h / a.per_q, first, a.n, a.f);
    copy_group(k, a.k, unit.b, unit.h / a.per_k, first, a.n, a.f);
    copy_group(v, unit.columns(a.v), unit.b, unit.h / a.per_v, first, a.n, unit.width);
    ptx::commit();
    if (K::delta && thread < group)
      beta[thread] = first + thread < a.n ? a.beta[unit.head * a.n + first + thread] : 0;
  }
  /// Weights the rows of q and k; a thread per feature.
  __device__ void weigh() const {
    if (thread >= F) return;
    const float* const from = a.log_decay + (unit.head * a.n + first) * a.f + thread;
    float logs[group], sum = 0;
#pragma unroll
    for (int i = 0; i < group; ++i) {
      logs[i] = first + i < a.n && thread < a.f ? from[i * a.f] : 0;
      const float by = expf(sum += logs[i]);
      at(alpha, i, thread) = expf(logs[i]);
      at(start, i, thread) = by;
      at(qs, i, thread) = a.scale * by * at(q, i, thread);
      at(ks, i, thread) = by * at(k, i, thread);
    }
    sum = 0;
#pragma unroll
    for (int i = group - 1; i >= 0; --i) {
      const float by = expf(sum);
      at(end, i, thread) = by;
      at(ke, i, thread) = by * at(k, i, thread);
      sum += logs[i];
    }
  }
  /// P and M; eight threads per row, from the diagonal to the left. A thread has packs of four features,
  /// 32 apart.
  __device__ void multiply_pairs() const {
    using Four = Pack<float, 4>;
    constexpr int count = F / 32;
    const int i = thread / 8, part = thread % 8;
    const auto pack = [&](const typename M::Wide& tile, int r, int x) {
      return *reinterpret_cast<const Four*>(tile.at(r, 4 * part + 32 * x));
    };
    Four of_row[2][count], w[count];
#pragma unroll
    for (int x = 0; x < count; ++x) {
      of_row[0][x] = pack(q, i, x), of_row[1][x] = pack(k, i, x);
      w[x] = {1, 1, 1, 1};
    }
#pragma unroll 1
    for (int back = 0; back < group; ++back) {
      const int j = i - back;
      float of_q = 0, of_k = 0;
      if (j >= 0)
#pragma unroll
        for (int x = 0; x < count; ++x) {
          const Four key = pack(k, j, x), decay = back > 0 ? pack(alpha, j + 1, x) : w[x];
#pragma unroll
          for (int e = 0; e < 4; ++e) {
            w[x].v[e] *= decay.v[e];
            const float y = w[x].v[e] * key.v[e];
            of_q += of_row[0][x].v[e] * y;
            if (K::delta) of_k += of_row[1][x].v[e] * y;
          }
        }
#pragma unroll
      for (int by = 1; by < 8; by *= 2) {
        of_q += __shfl_xor_sync(0xffffffffu, of_q, by);
        if (K::delta) of_k += __shfl_xor_sync(0xffffffffu, of_k, by);
      }
      if (part > 0) continue;
      at(p, i, j & (group - 1)) = j >= 0 ? a.scale * of_q : 0;
      if (K::delta) at(m, i, j & (group - 1)) = back > 0 ? of_k : 0;
    }
  }
  /// From loaded operands to P, M and (I + β M)⁻¹ β; contains barriers.
  __device__ void prepare() const {
    tile::wait_for_copies();
    weigh();
    __syncthreads();
    multiply_pairs();
    __syncthreads();
    if constexpr (K::delta) {
      if (thread < 32) invert_block(m, inverse, beta, 0);
      __syncthreads();
    }
  }

  /// u of the warp's columns and, in the backward pass, r.
  __device__ void compute_values(const State& s) const {
    if constexpr (K::delta) {
      Block d = {}, less = {}, product = {};
      tile::add_block(d, v, 0, column);
      add_product<F / 16>(less, all_rows(ks), right(s), column);
#pragma unroll
      for (int i = 0; i < 8; ++i) d[i / 4][i % 4] -= less[i / 4][i % 4];
      store_block(v, 0, column, d);
      __syncwarp();
      tile::multiply(product, rows_of<Side::left>(inverse, 0, 0),
                     columns_of<Side::right>(v, 0, column));
      if constexpr (!Backward) __syncwarp();  // u replaces v
      store_block(u, 0, column, product);
      __syncwarp();
      if constexpr (Backward) {
        subtract(d, rows_of<Side::left>(m, 0, 0), u);
        store_block(v, 0, column, d);
      }
    }
  }
  /// d −= left · the warp's columns of x.
  __device__ __forceinline__ void subtract(Block& d, const SplitFragment& left,
                                           const typename M::Narrow& x) const {
    Block sum = {};
    tile::multiply(sum, left, columns_of<Side::right>(x, 0, column));
#pragma unroll
    for (int i = 0; i < 8; ++i) d[i / 4][i % 4] -= sum[i / 4][i % 4];
  }
  /// y of the warp's columns.
  __device__ void attend(const State& s) const {
    Block y = {};
    add_product<F / 16>(y, all_rows(qs), right(s), column);
    tile::multiply(y, rows_of<Side::left>(p, 0, 0), columns_of<Side::right>(u, 0, column));
    store_rows(a.y, y);
  }
  __device__ void store_rows(const HeadRows<float>& x, Block& d) const {
    const HeadRows<float> to = unit.columns(x);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int r = first + row + i / 2 * 8, c = column + i % 2 * 8 + pair;
      if (r < a.n && c < unit.width)
        *reinterpret_cast<float2*>(to.at(unit.b, unit.h, r) + c) = {d[i % 2][i / 2 * 2],
                                                                    d[i % 2][i / 2 * 2 + 1]};
    }
  }
  /// The warp's columns of the state after the group; `to` may be `from`.
  __device__ void advance(const State& from, const State& to) const {
    if constexpr (!Backward) __syncwarp();  // the warp has read the state
#pragma unroll 1
    for (int f = 0; f < F; f += 16) {
      Block d = {};
      tile::multiply(d, columns_of<Side::left>(ke, 0, f), columns_of<Side::right>(u, 0, column));
      each_pair(d, [&](float2 x, int i, int j) {
        const float2 y = two(from, f + i, column + j);
        const float by = all(f + i);
        two(to, f + i, column + j) = {by * y.x + x.x, by * y.y + x.y};
      });
    }
  }
};

}  // namespace stretto::cuda::gated
