// Linear attention with decay, forward (gated_chunks.cuh): for each chunk of 64 positions
//
//     with the delta rule: M, r', then u, which replaces v
//     y = scale (e^{D_i} q S + lower triangle of (q kᵀ) e^{D_ij} u)
//     S = e^D S + (e^{D_j} k)ᵀ u
//
// Tested against the CPU.
#include "cuda/attention/gated_chunks.cuh"

namespace stretto::cuda {
namespace gated {
namespace {

template <class K>
struct ForwardMemory {
  using Wide = Tile<float, K::features, chunk>;
  using Narrow = Tile<float, K::values, chunk>;
  using State = Tile<float, K::values, K::features>;
  static constexpr int k = Wide::bytes, v = k + Wide::bytes, s = v + Narrow::bytes,
                       system = s + State::bytes, decays = system + (K::delta ? System::bytes : 0),
                       bytes = decays + Decays::bytes;
};

/// Writes y of a chunk.
template <class K, class M>
__device__ __forceinline__ void attend(const Args& a, const Unit<K>& unit, int first,
                                       const Place& p, const typename M::Wide& q,
                                       const typename M::Wide& k, const typename M::Narrow& u,
                                       const typename M::State& s, const Decays& decays) {
  Sums<K::values> y = {};
  float scores[chunk / 16][2][4] = {};
#pragma unroll 1
  for (int x = 0; x < K::features / 16; ++x) {
    const SplitFragment left = rows_of<Side::left>(q, 16 * p.warp_row, 16 * x);
#pragma unroll
    for (int c = 0; c < K::values / 32; ++c)
      tile::multiply(y[c], left, columns_of<Side::right>(s, 16 * x, block_column<K::values>(p, c)));
#pragma unroll
    for (int j = 0; j < chunk / 16; ++j)
      if (j <= p.warp_row) tile::multiply(scores[j], left, rows_of<Side::right>(k, 16 * j, 16 * x));
  }
  each(y, p, [&](float& x, int i, int) { x *= a.scale * decays.start[i]; });
#pragma unroll
  for (int j = 0; j < chunk / 16; ++j) {
    if (j > p.warp_row) continue;
#pragma unroll
    for (int e = 0; e < 8; ++e) {
      const int row = p.chunk_row(e % 4 / 2), column = 16 * j + e / 4 * 8 + p.column + e % 2;
      float& x = scores[j][e / 4][e % 4];
      x = row >= column ? a.scale * decays.between(row, column) * x : 0;
    }
    const auto left = packed<SplitFragment>(scores[j]);
#pragma unroll
    for (int c = 0; c < K::values / 32; ++c)
      tile::multiply(y[c], left, columns_of<Side::right>(u, 16 * j, block_column<K::values>(p, c)));
  }
  store(unit.columns(a.y), unit.b, unit.h, first, a.n, unit.width, p, y);
}

/// S = e^D S + (e^{D_j} k)ᵀ u
template <class K, class M>
__device__ __forceinline__ void advance(const Place& p, const typename M::Wide& k,
                                        const typename M::Narrow& u, const typename M::State& s,
                                        const Decays& decays) {
#pragma unroll
  for (int j = 0; j < K::features / 64; ++j) {
    Sums<K::values> sum = {};
    multiply(sum, p, 0, chunk / 16, scaled_columns(k, p, 64 * j, decays.end), right(u));
    each_pair(sum, p, [&](float2& x, int row, int column) {
      scale_and_add(two(s, 64 * j + row, column), decays.all(), x);
    });
  }
}

/// y, the states before the chunks (if a.states) and the state after the last. Grid: B H P
template <class K>
__global__ void __launch_bounds__(threads, 1) gated_forward(const __grid_constant__ Args a) {
  using M = ForwardMemory<K>;
  extern __shared__ __align__(1024) char memory[];
  const typename M::Wide q{memory}, k{memory + M::k};
  const typename M::Narrow v{memory + M::v};
  const typename M::State s{memory + M::s};
  const Decays decays(memory + M::decays);
  const Unit<K> unit(a);
  Place p;
  const int b = unit.b, h = unit.h, chunks = unit.chunks(a);
  load_state(s, unit, a, unit.of(a.state, a, unit.head));
#pragma unroll 1
  for (int c = 0; c < chunks; ++c) {
    p.make_opaque();
    const int first = c * chunk, rows = min(chunk, a.n - first);
    const int64_t position = unit.head * a.n + first;
    copy_chunk(q, a.q, b, h / a.per_q, first, a.n, a.f);
    copy_chunk(k, a.k, b, h / a.per_k, first, a.n, a.f);
    copy_chunk(v, unit.columns(a.v), b, h / a.per_v, first, a.n, unit.width);
    ptx::commit();
    decays.load(a.log_decay + position, K::delta ? a.beta + position : nullptr, rows);
    tile::wait_for_copies();
    if (a.states) store_state(s, unit, a, unit.of(a.states, a, unit.head * chunks + c));
    if constexpr (K::delta) {
      const System system(memory + M::system);
      begin_system(system, p, k, v, s, decays);
      __syncthreads();
      system.invert(p, decays.beta);
      __syncthreads();
      if (const int column = int(threadIdx.x) / 32 * 16; column < K::values)
        ColumnSolver{system, column}.template solve<true>(v, v);
      __syncthreads();
    }
    attend<K, M>(a, unit, first, p, q, k, v, s, decays);
    __syncthreads();  // all have read the state
    advance<K, M>(p, k, v, s, decays);
    __syncthreads();
  }
  store_state(s, unit, a, unit.of(a.state, a, unit.head));
}

constexpr const char* op = "gated_linear_attention";

}  // namespace

GatedLinearAttentionInputs aligned(const GatedLinearAttentionInputs& in) {
  return {linear::aligned_rows(in.q),
          linear::aligned_rows(in.k),
          linear::aligned_rows(in.v),
          in.log_decay,
          in.beta,
          in.scale};
}

Args args_of(const GatedLinearAttentionInputs& in, const Tensor& state) {
  const int heads = int(state.size(1)), f = int(in.k.size(3)), dv = int(in.v.size(3));
  const auto per = [&](const Tensor& x) { return heads / int(x.size(1)); };
  return {.q = head_rows<const float>(in.q),
          .k = head_rows<const float>(in.k),
          .v = head_rows<const float>(in.v),
          .log_decay = in.log_decay.data<float>(),
          .beta = data_or_null<float>(in.beta),
          .state = state.data<float>(),
          .heads = heads,
          .per_q = per(in.q),
          .per_k = per(in.k),
          .per_v = per(in.v),
          .n = int(in.k.size(2)),
          .f = f,
          .dv = dv,
          .parts = int(gated_linear_parts(f, dv)),
          .scale = float(in.scale)};
}
}  // namespace gated

bool serves_gated_linear_attention(const Tensor& q, const Tensor& k, const Tensor& v) {
  const int64_t f = k.size(3), dv = v.size(3), n = k.size(2);
  const int64_t heads = std::max({q.size(1), k.size(1), v.size(1)});
  return q.dtype() == f32 && q.numel() > 0 && k.numel() > 0 && v.numel() > 0 && f <= 128 &&
         f % 4 == 0 && dv % 4 == 0 && n < int64_t(1) << 30 &&
         k.size(0) * heads * gated_linear_parts(f, dv) < int64_t(1) << 30;
}

int64_t gated_linear_parts(int64_t f, int64_t dv) {
  return ceil_div(dv, int64_t(f <= 64 ? 64 : 32));
}

void gated_linear_attention(const GatedLinearAttentionInputs& in, const Tensor& out,
                            const Tensor& state, const Tensor& states) {
  using namespace gated;
  const GatedLinearAttentionInputs rows = aligned(in);
  Args a = args_of(rows, state);
  a.y = head_rows<float>(out);
  a.states = data_or_null<float>(states);
  const unsigned blocks = unsigned(in.k.size(0) * a.heads * a.parts);
  const int device = in.k.device().index;
  if (in.log_decay.dim() == 4) return forward_features(a, blocks, device);
  with_kind(a.f, in.beta.defined(), [&]<class K>() {
    launch_with_shared(op, device, gated_forward<K>, blocks, threads, ForwardMemory<K>::bytes, a);
  });
}

}  // namespace stretto::cuda
