// Linear attention with decay, backward: chunks from the last to the first, with the gradient dS of
// the state after the chunk in shared memory. For each chunk (equations: ops/attention/gated_chunks.h)
//
//     with the delta rule: M, r and u, as forward
//     P and dP, weighted by decays                          [C, C]
//     du = Pᵀ g + e^{D_j} k dS;  dr, dβ from the system     [C, V]
//     dM, weighted                                          [C, C], replaces P
//     dq = scale e^{D_i} g Sᵀ + dP k
//     dk = e^{D_j} u dSᵀ + dPᵀ q − e^{D_i} dr Sᵀ + dM k + dMᵀ k
//     dS = e^D dS + scale (e^{D_i} q)ᵀ g − (e^{D_i} k)ᵀ dr
//
// The gradient of log α_t is the sum of all terms whose decays include α_t, never a difference:
// from the start, those of positions i ≥ t; to the end, those of j < t; of the state, one number;
// between two positions, Σ_{i ≥ t} Σ_{j < t} W_ij with W = dP ∘ P + dM ∘ M, the product of a
// triangle of ones with W, of which each row adds up its columns below t. Tested against the CPU.
#include "cuda/attention/gated_chunks.cuh"

namespace stretto::cuda {
namespace gated {
namespace {

/// Sums of rows [C], one per half of the columns or per warp.
template <int Count>
struct RowSums {
  float* data;
  static constexpr int bytes = Count * chunk * 4;
  __device__ float& at(int part, int row) const { return data[part * chunk + row]; }
  /// The sums of rows `row` and `row` + 1.
  __device__ float2 of_two(int row) const {
    float2 sum = {};
#pragma unroll
    for (int i = 0; i < Count; ++i) {
      const float2 x = *reinterpret_cast<const float2*>(&at(i, row));
      sum = {sum.x + x.x, sum.y + x.y};
    }
    return sum;
  }
};

template <class K>
struct BackwardMemory {
  using Wide = Tile<float, K::features, chunk>;
  using Narrow = Tile<float, K::values, chunk>;
  using State = Tile<float, K::values, K::features>;
  using Square = Tile<float, 64, chunk>;
  static constexpr int k = Wide::bytes, v = k + Wide::bytes, g = v + Narrow::bytes,
                       u = g + Narrow::bytes, du = u + (K::delta ? Narrow::bytes : 0),
                       s = du + (K::delta ? Narrow::bytes : 0), ds = s + State::bytes,
                       p = ds + State::bytes, dp = p + Square::bytes, w = dp + Square::bytes,
                       decays = w + (K::delta ? System::bytes : Square::bytes),
                       starts = decays + Decays::bytes, ends = starts + RowSums<2>::bytes,
                       between = ends + RowSums<2>::bytes, betas = between + RowSums<2>::bytes,
                       factors = betas + RowSums<K::values / 16>::bytes,
                       bytes = factors + (chunk + threads / 32) * 4;
};

/// A block's memory and place, and the phases of a chunk.
template <class K>
struct BackwardChunk {
  using M = BackwardMemory<K>;
  const Args& a;
  const Unit<K>& unit;
  const typename M::Wide q, k;
  const typename M::Narrow v, g, u, du;  // v becomes r; du becomes dr
  const typename M::State s, ds;
  const typename M::Square p, dp, w;  // p: P, then dM; w: M, then W
  const System system;
  const Decays decays;
  const RowSums<2> starts, ends, between;
  const RowSums<K::values / 16> betas;
  float *const factors, *const of_state;  // scale e^{D_i}; sums of the warps
  Place place;
  int first = 0, rows = 0;

  __device__ BackwardChunk(const Args& args, const Unit<K>& of, char* at)
      : a(args),
        unit(of),
        q{at},
        k{at + M::k},
        v{at + M::v},
        g{at + M::g},
        u{at + (K::delta ? M::u : M::v)},
        du{at + M::du},
        s{at + M::s},
        ds{at + M::ds},
        p{at + M::p},
        dp{at + M::dp},
        w{at + M::w},
        system(at + M::w),
        decays(at + M::decays),
        starts{reinterpret_cast<float*>(at + M::starts)},
        ends{reinterpret_cast<float*>(at + M::ends)},
        between{reinterpret_cast<float*>(at + M::between)},
        betas{reinterpret_cast<float*>(at + M::betas)},
        factors(reinterpret_cast<float*>(at + M::factors)),
        of_state(factors + chunk) {}

  __device__ bool solves() const { return int(threadIdx.x) / 32 * 16 < K::values; }
  __device__ ColumnSolver solver() const { return {system, int(threadIdx.x) / 32 * 16}; }

  __device__ void load(int c) {
    place.make_opaque();
    const int b = unit.b, h = unit.h;
    first = c * chunk, rows = min(chunk, a.n - first);
    copy_chunk(q, a.q, b, h / a.per_q, first, a.n, a.f);
    copy_chunk(k, a.k, b, h / a.per_k, first, a.n, a.f);
    copy_chunk(v, unit.columns(a.v), b, h / a.per_v, first, a.n, unit.width);
    copy_chunk(g, unit.columns(a.g), b, h, first, a.n, unit.width);
    ptx::commit();
    const int64_t position = unit.head * a.n + first;
    decays.load(a.log_decay + position, K::delta ? a.beta + position : nullptr, rows);
    load_state(s, unit, a, unit.of(a.states, a, unit.head * unit.chunks(a) + c));
    tile::wait_for_copies();
    if (threadIdx.x < chunk) factors[threadIdx.x] = a.scale * decays.start[threadIdx.x];
  }
  __device__ void compute_values() const {
    if constexpr (K::delta) {
      begin_system(system, place, k, v, s, decays);
      __syncthreads();
      system.invert(place, decays.beta);
      __syncthreads();
      if (solves()) solver().template solve<false>(v, u);
      __syncthreads();
    }
  }

  /// P, dP, and dP ∘ P, which is returned and, without the delta rule, stored as W.
  __device__ __forceinline__ void weigh_products(Sums<chunk>& of_decays) const {
    Sums<chunk> x = {}, y = {};
    multiply(x, place, 0, K::features / 16, left_rows(q, place), right_transposed(k));
    multiply(y, place, 0, K::values / 16, left_rows(g, place), right_transposed(u));
    each(x, place, [&](float& sum, int i, int j) {
      sum = i >= j ? a.scale * decays.between(i, j) * sum : 0;
    });
#pragma unroll
    for (int c = 0; c < chunk / 32; ++c)
#pragma unroll
      for (int i = 0; i < 8; ++i)
        of_decays[c][i / 4][i % 4] = x[c][i / 4][i % 4] * y[c][i / 4][i % 4];
    each(y, place, [&](float& sum, int i, int j) {
      sum = i >= j ? a.scale * decays.between(i, j) * sum : 0;
    });
    store(p, place, x);
    store(dp, place, y);
    if constexpr (!K::delta) store(w, place, of_decays);
  }

  /// du = dv without the delta rule, else to shared memory.
  __device__ __forceinline__ void value_gradients() const {
    Sums<K::values> d = {};
    multiply(d, place, 0, K::features / 16, left_rows(k, place), right(ds));
    each(d, place, [&](float& x, int j, int) { x *= decays.end[j]; });
    multiply(d, place, place.warp_row, chunk / 16, left_columns(p, place), right(g));
    if constexpr (K::delta)
      store(du, place, d);
    else
      store_values(d);
  }
  __device__ __forceinline__ void store_values(const Sums<K::values>& d) const {
    store(unit.columns(a.to.v), unit.b, unit.h, first, a.n, unit.width, place, d);
  }

  /// dr, which replaces du, and dβ of a warp's columns, from the last block of rows to the first.
  __device__ __forceinline__ void solve_gradients() const {
    const ColumnSolver solver = this->solver();
#pragma unroll 1
    for (int j = chunk / 16 - 1; j >= 0; --j) {
      float d[2][4];
      solver.load(d, du, 16 * j);
#pragma unroll 1
      for (int i = j + 1; i < chunk / 16; ++i)
        solver.subtract(d, solver.m_transposed(j, i), du, 16 * i);
      store_block(du, 16 * j, solver.column, d);
      __syncwarp();
      solver.template transform<true>(columns_of<Side::left>(system.inverse, 16 * j, 0), du, du,
                                      16 * j);
      solver.subtract(d, solver.m_transposed(j, j), du, 16 * j);
      float sums[2] = {};
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const float2 r =
            two(v, 16 * j + place.row + e % 2 * 8, solver.column + e / 2 * 8 + place.column);
        sums[e % 2] += d[e / 2][e % 2 * 2] * r.x + d[e / 2][e % 2 * 2 + 1] * r.y;
      }
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const float sum = quad_sum(sums[h]);
        if (place.column == 0) betas.at(solver.column / 16, 16 * j + place.row + 8 * h) = sum;
      }
    }
  }

  /// dM, weighted, which replaces P, and W, which replaces M.
  __device__ __forceinline__ void system_gradients(Sums<chunk>& of_decays) const {
    Sums<chunk> z = {};
    multiply(z, place, 0, K::values / 16, left_rows(du, place), right_transposed(u));
#pragma unroll
    for (int c = 0; c < chunk / 32; ++c)
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const float2 m = two(w, place.chunk_row(i % 2),
                             block_column<chunk>(place, c) + i / 2 * 8 + place.column);
        const int e = i % 2 * 2;
        of_decays[c][i / 2][e] -= z[c][i / 2][e] * m.x;
        of_decays[c][i / 2][e + 1] -= z[c][i / 2][e + 1] * m.y;
      }
    store(w, place, of_decays);
    each(z, place, [&](float& x, int i, int j) { x = i > j ? -x * decays.between(i, j) : 0; });
    store(p, place, z);
  }

  /// x, features f …, *= factors of the rows; adds the sums of x ∘ rows of `of` to `sums`.
  __device__ __forceinline__ void weigh_rows(Sums<64>& x, const float* by, float sign,
                                             const typename M::Wide& of, int f,
                                             float (&sums)[2]) const {
#pragma unroll
    for (int c = 0; c < 2; ++c)
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int h = i % 2, row = place.chunk_row(h);
        const float2 other =
            two(of, row, f + block_column<64>(place, c) + i / 2 * 8 + place.column);
        float &first = x[c][i / 2][2 * h], &second = x[c][i / 2][2 * h + 1];
        first *= sign * by[row], second *= sign * by[row];
        sums[h] += first * other.x + second * other.y;
      }
  }
  __device__ void put(const RowSums<2>& to, const float (&sums)[2]) const {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const float sum = quad_sum(sums[h]);
      if (place.column == 0) to.at(place.warp_column, place.chunk_row(h)) = sum;
    }
  }

  /// Stores 64 features of the gradient of q or k.
  __device__ void store_features(HeadRows<float> to, int f, const Sums<64>& d) const {
    to.data += f;
    store(to, unit.b, unit.h * a.parts + unit.part, first, a.n, a.f - f, place, d);
  }
  __device__ __forceinline__ void query_gradients(float (&from_start)[2]) const {
#pragma unroll 1
    for (int f = 0; f < K::features; f += 64) {
      Sums<64> d = {};
      multiply(d, place, 0, K::values / 16, left_rows(g, place), right_transposed(s, f));
      weigh_rows(d, factors, 1, q, f, from_start);
      multiply(d, place, 0, place.warp_row + 1, left_rows(dp, place), right(k, f));
      store_features(a.to.q, f, d);
    }
  }
  __device__ __forceinline__ void key_gradients(float (&from_start)[2]) const {
    float to_end[2] = {};
#pragma unroll 1
    for (int f = 0; f < K::features; f += 64) {
      Sums<64> d = {}, more = {};
      multiply(d, place, 0, K::values / 16, left_rows(u, place), right_transposed(ds, f));
      weigh_rows(d, decays.end, 1, k, f, to_end);
      multiply(d, place, place.warp_row, chunk / 16, left_columns(dp, place), right(q, f));
      if constexpr (K::delta) {
        multiply(more, place, 0, K::values / 16, left_rows(du, place), right_transposed(s, f));
        weigh_rows(more, decays.start, -1, k, f, from_start);
        multiply(more, place, 0, place.warp_row + 1, left_rows(p, place), right(k, f));
        multiply(more, place, place.warp_row, chunk / 16, left_columns(p, place), right(k, f));
#pragma unroll
        for (int i = 0; i < 16; ++i) d[i / 8][i / 4 % 2][i % 4] += more[i / 8][i / 4 % 2][i % 4];
      }
      store_features(a.to.k, f, d);
    }
    put(ends, to_end);
  }

  /// Σ_{i ≥ t} Σ_{j < t} W_ij of the warp's rows t.
  __device__ __forceinline__ void decays_between() const {
    Sums<chunk> d = {};
    const int row = 16 * place.warp_row;
    const auto ones = [&](int i0) {  // 1 for i ≥ t
      SplitFragment x;
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const int t = row + place.row + e / 2 * 8, i = i0 + e % 2 * 8 + place.column;
        x.set(e / 2, e % 2, {i >= t ? 1.f : 0.f, i + 1 >= t ? 1.f : 0.f});
      }
      return x;
    };
    multiply(d, place, place.warp_row, chunk / 16, ones, right(w));
    float sums[2] = {};
#pragma unroll
    for (int c = 0; c < chunk / 32; ++c)
#pragma unroll
      for (int i = 0; i < 8; ++i)
        if (block_column<chunk>(place, c) + i / 4 * 8 + place.column + i % 2 <
            place.chunk_row(i % 4 / 2))
          sums[i % 4 / 2] += d[c][i / 4][i % 4];
    put(between, sums);
  }

  /// Writes the warps' parts of Σ S ∘ dS.
  __device__ void decay_of_state() const {
    float sum = 0;
#pragma unroll 4
    for (int i = int(threadIdx.x); i < K::features * K::values; i += threads)
      sum += reinterpret_cast<const float*>(s.data)[i] * reinterpret_cast<const float*>(ds.data)[i];
    sum = combine<32>(sum, Sum{});
    if (tile::lane_index() == 0) of_state[threadIdx.x / 32] = sum;
  }

  /// The gradients of log α and β, by one warp; lane l has positions 2 l and 2 l + 1.
  __device__ void store_decays() const {
    if (threadIdx.x >= 32) return;
    const int lane = int(threadIdx.x);
    float state = 0;
#pragma unroll
    for (int w = 0; w < threads / 32; ++w) state += of_state[w];
    state *= decays.all();
    const float2 from_starts = starts.of_two(2 * lane), to_ends = ends.of_two(2 * lane),
                 betweens = between.of_two(2 * lane),
                 of_betas = K::delta ? betas.of_two(2 * lane) : float2{};
    const float x[2] = {from_starts.x, from_starts.y}, y[2] = {to_ends.x, to_ends.y};
    float after = x[0] + x[1], before = y[0] + y[1];  // of positions ≥ 2 l, and < 2 l + 2
#pragma unroll
    for (int by = 1; by < 32; by *= 2) {
      const float more = __shfl_down_sync(0xffffffffu, after, by),
                  less = __shfl_up_sync(0xffffffffu, before, by);
      if (lane + by < 32) after += more;
      if (lane >= by) before += less;
    }
    const float next = __shfl_down_sync(0xffffffffu, after, 1),
                last = __shfl_up_sync(0xffffffffu, before, 1);
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int t = 2 * lane + i;
      const float from_start = i == 0 ? after : (lane < 31 ? next : 0) + x[1],
                  to_end = (lane > 0 ? last : 0) + (i == 0 ? 0 : y[0]);
      if (t >= rows) continue;
      const int64_t at = unit.summand * a.n + first + t;
      a.to.log_decay[at] = from_start + to_end + state + (i == 0 ? betweens.x : betweens.y);
      if constexpr (K::delta) a.to.beta[at] = i == 0 ? of_betas.x : of_betas.y;
    }
  }

  /// dS = e^D dS + scale (e^{D_i} q)ᵀ g − (e^{D_i} k)ᵀ dr
  __device__ __forceinline__ void state_gradient() const {
#pragma unroll
    for (int j = 0; j < K::features / 64; ++j) {
      Sums<K::values> d = {}, less = {};
      multiply(d, place, 0, chunk / 16, scaled_columns(q, place, 64 * j, factors), right(g));
      if constexpr (K::delta)
        multiply(less, place, 0, chunk / 16, scaled_columns(k, place, 64 * j, decays.start),
                 right(du));
#pragma unroll
      for (int c = 0; c < K::values / 32; ++c)
#pragma unroll
        for (int i = 0; i < 8; ++i) d[c][i / 4][i % 4] -= less[c][i / 4][i % 4];
      each_pair(d, place, [&](float2& x, int row, int column) {
        scale_and_add(two(ds, 64 * j + row, column), decays.all(), x);
      });
    }
  }

  __device__ __forceinline__ void run() {
    Sums<chunk> of_decays;
    compute_values();
    weigh_products(of_decays);
    __syncthreads();
    value_gradients();
    if constexpr (K::delta) {
      __syncthreads();
      if (solves()) solve_gradients();
      __syncthreads();
      Sums<K::values> d = {};
#pragma unroll
      for (int c = 0; c < K::values / 32; ++c)
        tile::add_block(d[c], du, 16 * place.warp_row, block_column<K::values>(place, c));
      store_values(d);
      system_gradients(of_decays);
      __syncthreads();
    }
    float from_start[2] = {};
    query_gradients(from_start);
    key_gradients(from_start);
    put(starts, from_start);
    decays_between();
    decay_of_state();
    __syncthreads();  // dS has been read, the sums have been written
    store_decays();
    state_gradient();
    __syncthreads();
  }
};

/// All gradients. a.state: that of the state after the last position, then that of the state before
/// the first. Grid: B H P
template <class K>
__global__ void __launch_bounds__(threads, 1) gated_backward(const __grid_constant__ Args a) {
  extern __shared__ __align__(1024) char memory[];
  const Unit<K> unit(a);
  BackwardChunk<K> chunk_of(a, unit, memory);
  load_state(chunk_of.ds, unit, a, unit.of(a.state, a, unit.head));
#pragma unroll 1
  for (int c = unit.chunks(a) - 1; c >= 0; --c) {
    chunk_of.load(c);
    chunk_of.run();
  }
  store_state(chunk_of.ds, unit, a, unit.of(a.state, a, unit.head));
}

}  // namespace
}  // namespace gated

void gated_linear_attention_backward(const GatedLinearAttentionInputs& in, const Tensor& states,
                                     const Tensor& grad, const GatedLinearAttentionGradients& to) {
  using namespace gated;
  const GatedLinearAttentionInputs rows = aligned(in);
  const Tensor g = linear::aligned_rows(grad);
  Args a = args_of(rows, to.state);
  a.g = head_rows<const float>(g);
  a.states = states.data<float>();
  a.to = {.q = head_rows<float>(to.q),
          .k = head_rows<float>(to.k),
          .v = head_rows<float>(to.v),
          .log_decay = to.log_decay.data<float>(),
          .beta = data_or_null<float>(to.beta)};
  const unsigned blocks = unsigned(in.k.size(0) * a.heads * a.parts);
  const int device = in.k.device().index;
  if (in.log_decay.dim() == 4) return backward_features(a, blocks, device);
  with_kind(a.f, in.beta.defined(), [&]<class K>() {
    launch_with_shared("gated_linear_attention", device, gated_backward<K>, blocks, threads,
                       BackwardMemory<K>::bytes, a);
  });
}

}  // namespace stretto::cuda
