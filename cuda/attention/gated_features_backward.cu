// Linear attention with decay per feature, backward (gated_features.cuh). Tested against the CPU.
#include "cuda/attention/gated_features.cuh"

namespace stretto::cuda::gated {
namespace {

/// The phases of the backward pass.
template <class K>
struct FeatureBackward : FeatureGroup<K, true> {
  using Base = FeatureGroup<K, true>;
  using Base::a, Base::all, Base::alpha, Base::column, Base::each, Base::end, Base::F, Base::first,
      Base::inverse, Base::k, Base::ke, Base::ks, Base::m, Base::memory, Base::p, Base::pair,
      Base::q, Base::qs, Base::row, Base::start, Base::subtract, Base::thread, Base::u, Base::unit,
      Base::v, Base::V;
  using typename Base::M, typename Base::State;
  const typename M::Wide dqs, dks, dke;
  const typename M::Narrow g, du;  // du becomes dr
  const typename M::Square dp, dm;
  const State ds;
  float* const betas;  // parts of dβ, by warp

  __device__ FeatureBackward(const Args& args, const Unit<K>& of, char* data)
      : Base(args, of, data),
        dqs(memory.wide(8)),
        dks(memory.wide(9)),
        dke(memory.wide(10)),
        g(memory.narrow(2)),
        du(memory.narrow(3)),
        dp(memory.square(3)),
        dm(memory.square(4)),
        ds(memory.state(groups)),
        betas(memory.line() + group) {}

  /// du of the warp's columns, then dr and dβ; dv.
  __device__ void value_gradients() const {
    Block d = {};
    add_product<F / 16>(d, all_rows(ke), right(ds), column);
    tile::multiply(d, columns_of<Side::left>(p, 0, 0), columns_of<Side::right>(g, 0, column));
    if constexpr (K::delta) {
      store_block(du, 0, column, d);
      __syncwarp();
      Block dr = {};
      tile::multiply(dr, columns_of<Side::left>(inverse, 0, 0),
                     columns_of<Side::right>(du, 0, column));
      __syncwarp();
      store_block(du, 0, column, dr);
      __syncwarp();
      subtract(d, columns_of<Side::left>(m, 0, 0), du);
      float sums[2] = {};
      this->each_pair(d, [&](float2 x, int i, int j) {
        const float2 r = two(v, i, column + j);
        sums[i / 8] += x.x * r.x + x.y * r.y;
      });
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const float sum = quad_sum(sums[h]);
        if (pair == 0) betas[column + row + 8 * h] = sum;
      }
      this->store_rows(a.to.v, dr);
    } else {
      this->store_rows(a.to.v, d);
    }
  }
  /// The gradients of the weighted rows, of the warp's features, and of P and M, which nothing reads
  /// above their diagonals.
  __device__ void row_gradients(const State& s) const {
#pragma unroll 1
    for (int f = column; f < F; f += feature_threads / 2) {
      Block of_q = {}, of_k = {}, of_end = {};
      add_product<V / 16>(of_q, all_rows(g), right_transposed(s), f);
      each(of_q, [&](float& x, int, int) { x *= a.scale; });
      store_block(dqs, 0, f, of_q);
      add_product<V / 16>(of_end, all_rows(u), right_transposed(ds), f);
      store_block(dke, 0, f, of_end);
      if constexpr (K::delta) {
        add_product<V / 16>(of_k, all_rows(du), right_transposed(s), f);
        each(of_k, [](float& x, int, int) { x = -x; });
        store_block(dks, 0, f, of_k);
      }
    }
    if (thread < 32) {
      Block d = {};
      add_product<V / 16>(d, all_rows(g), right_transposed(u), 0);
      each(d, [&](float& x, int, int) { x *= a.scale; });
      store_block(dp, 0, 0, d);
    } else if (K::delta && thread < 64) {
      Block d = {};
      add_product<V / 16>(d, all_rows(du), right_transposed(u), 0);
      each(d, [](float& x, int, int) { x = -x; });
      store_block(dm, 0, 0, d);
    }
  }

  /// The terms of a feature's gradients that go through the state.
  __device__ __forceinline__ void through_state(const State& s, float (&dq)[group],
                                                float (&dk)[group], float (&dg)[group]) const {
    float sum = 0;
#pragma unroll
    for (int i = group - 1; i >= 0; --i) {
      const float by = at(start, i, thread);
      dq[i] = by * at(dqs, i, thread);
      dk[i] = K::delta ? by * at(dks, i, thread) : 0;
      dg[i] = sum += at(q, i, thread) * dq[i] + at(k, i, thread) * dk[i];
    }
    sum = 0;
#pragma unroll 4
    for (int x = 0; x < V; ++x) {
      const int j = (x + thread) % V;  // in different banks
      sum += at(s, thread, j) * at(ds, thread, j);
    }
    sum *= all(thread);
#pragma unroll
    for (int j = 0; j < group; ++j) {
      dg[j] += sum;
      const float d = at(end, j, thread) * at(dke, j, thread);
      dk[j] += d;
      sum += at(k, j, thread) * d;
    }
  }
  /// The terms of pairs of positions: P and M.
  __device__ __forceinline__ void through_pairs(float (&dq)[group], float (&dk)[group],
                                                float (&dg)[group]) const {
    float ks_[group], as[group];
#pragma unroll
    for (int i = 0; i < group; ++i) ks_[i] = at(k, i, thread), as[i] = at(alpha, i, thread);
#pragma unroll
    for (int i = 0; i < group; ++i) {
      const float of_q = at(q, i, thread), on_diagonal = at(dp, i, i);
      dq[i] += on_diagonal * ks_[i];
      dk[i] += on_diagonal * of_q;
      float w[group], decay = 1, sum = 0;
#pragma unroll
      for (int j = i - 1; j >= 0; --j) w[j] = decay *= as[j + 1];
#pragma unroll
      for (int j = 0; j < i; ++j) {
        const float p_ij = at(dp, i, j), m_ij = K::delta ? at(dm, i, j) : 0,
                    d = w[j] * (p_ij * of_q + m_ij * ks_[i]), key = w[j] * ks_[j];
        dq[i] += p_ij * key;
        if (K::delta) dk[i] += m_ij * key;
        dk[j] += d;
        sum += d * ks_[j];
        dg[j + 1] += sum;
      }
    }
  }
  /// Gradients of q, k, log α and β; a thread per feature.
  __device__ void store_gradients(const State& s) const {
    if (K::delta && thread < group && first + thread < a.n) {
      float sum = 0;
#pragma unroll
      for (int w = 0; w < V / 16; ++w) sum += betas[w * group + thread];
      a.to.beta[unit.summand * a.n + first + thread] = sum;
    }
    if (thread >= a.f) return;
    float dq[group], dk[group], dg[group];
    through_state(s, dq, dk, dg);
    through_pairs(dq, dk, dg);
    const int head = unit.h * a.parts + unit.part;
#pragma unroll
    for (int i = 0; i < group; ++i) {
      if (first + i >= a.n) continue;
      a.to.q.at(unit.b, head, first + i)[thread] = dq[i];
      a.to.k.at(unit.b, head, first + i)[thread] = dk[i];
      a.to.log_decay[(unit.summand * a.n + first + i) * a.f + thread] = dg[i];
    }
  }
  /// The warp's columns of the gradient of the state before the group.
  __device__ void state_gradient() const {
#pragma unroll 1
    for (int f = 0; f < F; f += 16) {
      Block d = {}, less = {};
      tile::multiply(d, columns_of<Side::left>(qs, 0, f), columns_of<Side::right>(g, 0, column));
      if constexpr (K::delta)
        tile::multiply(less, columns_of<Side::left>(ks, 0, f),
                       columns_of<Side::right>(du, 0, column));
#pragma unroll
      for (int i = 0; i < 8; ++i) d[i / 4][i % 4] -= less[i / 4][i % 4];
      this->each_pair(d, [&](float2 x, int i, int j) {
        scale_and_add(two(ds, f + i, column + j), all(f + i), x);
      });
    }
  }

  /// The state before each group of a chunk, in the memory's states.
  __device__ void compute_states(int begin, int count) {
#pragma unroll 1
    for (int i = 0; i + 1 < count; ++i) {
      this->load(begin + i * group);
      this->prepare();
      if (this->has_columns()) {
        this->compute_values(memory.state(i));
        this->advance(memory.state(i), memory.state(i + 1));
      }
      __syncthreads();
    }
  }
  __device__ void run(const State& s, int at_position) {
    copy_group(g, unit.columns(a.g), unit.b, unit.h, at_position, a.n, unit.width);
    this->load(at_position);
    this->prepare();
    if (this->has_columns()) {
      this->compute_values(s);
      value_gradients();
    }
    __syncthreads();
    row_gradients(s);
    __syncthreads();
    store_gradients(s);
    __syncthreads();
    if (this->has_columns()) state_gradient();
    __syncthreads();
  }
};

/// All gradients, as gated_backward. Grid: B H P
template <class K>
__global__ void __launch_bounds__(feature_threads, 1)
    gated_features_backward(const __grid_constant__ Args a) {
  extern __shared__ __align__(1024) char memory[];
  const Unit<K> unit(a);
  FeatureBackward<K> of(a, unit, memory);
  load_state(of.ds, unit, a, unit.of(a.state, a, unit.head));
#pragma unroll 1
  for (int c = unit.chunks(a) - 1; c >= 0; --c) {
    const int begin = c * chunk, count = (min(chunk, a.n - begin) + group - 1) / group;
    load_state(of.memory.state(0), unit, a, unit.of(a.states, a, unit.head * unit.chunks(a) + c));
    of.compute_states(begin, count);
#pragma unroll 1
    for (int i = count - 1; i >= 0; --i) of.run(of.memory.state(i), begin + i * group);
  }
  store_state(of.ds, unit, a, unit.of(a.state, a, unit.head));
}

}  // namespace

void backward_features(const Args& a, unsigned blocks, int device) {
  with_kind(a.f, a.beta, [&]<class K>() {
    launch_with_shared("gated_linear_attention", device, gated_features_backward<K>, blocks,
                       feature_threads, FeatureMemory<K, true>::bytes, a);
  });
}

}  // namespace stretto::cuda::gated
