// Linear attention, backward. With r = 1 / total, and S, z as in linear_attention.cu,
//
//     N·g = Σ_f Q (g Sᵀ) + Σ_j P (g Vᵀ)    e = r N·g    (= g·y, but y may be rounded)
//     dQ = r [g Sᵀ − e z + tril(g Vᵀ − e) K]                from the first chunk to the last
//     dK = V Tᵀ + w + [tril(g Vᵀ − e) r]ᵀ Q                 from the last chunk to the first
//     dV = K T + [tril(Q Kᵀ) r]ᵀ g                T = Σ r q gᵀ, w = −Σ r e q of the chunks after
//
// Both sweeps iterate over chunks as in linear_attention_chunks.cuh. The first has a block per
// head, and writes e; the second a block per key head, whose steps are the chunks of its heads:
//
//     for each chunk, from the last one on:
//         dK, dV = terms of the state T, w
//         for each head of the key head:
//             dV += [tril(Q Kᵀ) r]ᵀ g,  dK += [tril(g Vᵀ − e) r]ᵀ Q
//             T += (r Q)ᵀ g,  w −= Qᵀ (r e)
//         store dK, dV
//
// Both are split into segments if there are few heads. T and w after the first chunk are the
// gradient of the state before it. In bf16 the weights tril(…) are rounded as operands; S, T and r
// q are not. Tested against the CPU.
#include "cuda/attention/linear_attention_chunks.cuh"

namespace stretto::cuda {
namespace linear {
namespace {

/// Own bytes: partial sums N·g [2, 64], or r and e of two steps [2][2, 64].
constexpr SharedTiles backward_tiles{.own_bytes = 4 * chunk * 4};

/// 1 / total of a query, 0 if there is no such query; first: the head's first query.
template <class T>
__device__ inline float factor_of(const Args<T>& a, int64_t first, int row) {
  if (row < 0 || row >= a.size.m) return 0;
  const float total = a.totals[first + row];
  return total == 0 ? 0 : 1 / total;
}

/// Calls f(sum, h, z) for a warp's sums over features, of rows l / 4 + 8h, with z of their columns.
template <int N, class F>
__device__ __forceinline__ void with_z(float (&d)[N][2][2][4], const float* z, const Place& p,
                                       const F& f) {
#pragma unroll
  for (int y = 0; y < 2 * N; ++y)
#pragma unroll
    for (int j = 0; j < 2; ++j) {
      const float2 two = *reinterpret_cast<const float2*>(z + p.half<64 * N>(y) + 8 * j + p.column);
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        f(d[y / 2][y % 2][j][2 * h], h, two.x);
        f(d[y / 2][y % 2][j][2 * h + 1], h, two.y);
      }
    }
}

/// g Vᵀ of a warp's queries in blocks of 16 keys: all in registers or, if these do not suffice, one
/// block at a time, recomputed at each use.
template <class T, Widths W>
struct GradientProducts {
  static constexpr bool held = Registers<T, W>::hold_products;
  using Block = float[2][4];
  Block d[held ? 4 : 1] = {};

  __device__ __forceinline__ Block& of_keys(int y, const Place& p, const Chunk<T, W>& in) {
    if constexpr (!held) {
#pragma unroll
      for (int i = 0; i < 8; ++i) d[0][i / 4][i % 4] = 0;
      multiply_rows<1>(d, p, in.g, in.v, y, BlockRange{0, 4}, [](int, const FragmentOf<T>&) {});
    }
    return d[held ? y : 0];
  }
};

/// N·g of the warp's rows, over its half of the features: Σ_f Q (g Sᵀ) + Σ_j P (g Vᵀ).
template <class T, Widths W>
__device__ __forceinline__ void dot_outputs(float (&dot)[2], const Place& p, const Chunk<T, W>& in,
                                            GradientProducts<T, W>& products,
                                            const HalfRows<W.features>& from_state,
                                            const BlockRange& range) {
#pragma unroll(GradientProducts <T, W>::held ? 4 : 1)
  for (int y = 0; y < 4; ++y)
    if (range.has(y)) {
      float scores[2][4] = {};
#pragma unroll(Registers <T, W>::steps)
      for (int x = 0; x < W.features / 32; ++x)
        multiply(scores, rows_of<Side::left>(in.q, 16 * p.warp_row, p.half<W.features>(x)),
                 rows_of<Side::right>(in.k, 16 * y, p.half<W.features>(x)));
      if (y == p.warp_row) mask_diagonal<false>(p, scores);
      const float(&w)[2][4] = products.of_keys(y, p, in);
#pragma unroll
      for (int i = 0; i < 8; ++i) dot[i % 4 / 2] += scores[i / 4][i % 4] * w[i / 4][i % 4];
    }
#pragma unroll
  for (int y = 0; y < W.features / 32; ++y) {
    const auto q = rows_of<Side::left>(in.q, 16 * p.warp_row, p.half<W.features>(y));
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const float2 two = q.values(i / 2, i % 2);
      const float(&sums)[4] = from_state[y / 2][y % 2][i % 2];
      dot[i / 2] += two.x * sums[i / 2 * 2] + two.y * sums[i / 2 * 2 + 1];
    }
  }
}

/// e = r N·g of the warp's rows, from the sums of both halves; contains a barrier.
__device__ __forceinline__ void slopes_of(float (&slope)[2], float (&dot)[2], const float (&by)[2],
                                          const Place& p, float* dots) {
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    dot[i] = quad_sum(dot[i]);
    if (p.column == 0) dots[p.warp_column * chunk + p.chunk_row(i)] = dot[i];
  }
  __syncthreads();
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const int row = p.chunk_row(i);
    slope[i] = by[i] * (dots[row] + dots[chunk + row]);
  }
}

/// Writes dq and e of the chunk whose first query is `first`.
template <class T, Widths W, class S>
__device__ __forceinline__ void write_query_gradients(const Args<T>& a, int b, int h, int first,
                                                      const Place& p, const Chunk<T, W>& in,
                                                      const S& state, float* dots, bool keys) {
  const int64_t first_query = int64_t(blockIdx.x) * a.size.m;
  float by[2];
  T* rows[2];
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const int row = first + p.chunk_row(i);
    by[i] = factor_of(a, first_query, row);
    rows[i] = row_or_null(a.dq, b, h, row, a.size.m);
  }
  const BlockRange range{0, keys ? p.warp_row + 1 : 0};
  GradientProducts<T, W> products;
  HalfRows<W.features> d = {};
  multiply_rows<Registers<T, W>::steps>(
      products.d, p, in.g, in.v, 0, products.held ? range : BlockRange{0, 0},
      [&](int x, const FragmentOf<T>& g) { state.multiply_by_transposed(d, p, g, 16 * x); });

  float dot[2] = {}, slope[2];
  dot_outputs(dot, p, in, products, d, range);
  slopes_of(slope, dot, by, p, dots);
#pragma unroll
  for (int i = 0; i < 2; ++i)
    if (rows[i] && p.owns_row()) a.slopes[first_query + first + p.chunk_row(i)] = slope[i];

  with_z(d, state.line.data, p, [&](float& x, int i, float z) { x -= slope[i] * z; });
#pragma unroll(products.held ? 4 : 1)
  for (int x = 0; x < 4; ++x)
    if (range.has(x)) {
      float(&w)[2][4] = products.of_keys(x, p, in);
#pragma unroll
      for (int i = 0; i < 8; ++i) w[i / 4][i % 4] -= slope[i % 4 / 2];
      if (x == p.warp_row) mask_diagonal<false>(p, w);
      multiply_half(d, p, packed<FragmentOf<T>>(w), in.k, 16 * x);
    }
  store_half(rows, d, by, p, a.size.f);
}

/// dq and e; without keys, the state is that of all keys. Grid: [B H, segments]
template <class Memory>
__global__ void __launch_bounds__(threads, Memory::blocks_per_sm)
    linear_attention_queries(const __grid_constant__ Args<typename Memory::Element> a) {
  using Operand = typename Memory::Operand;
  extern __shared__ __align__(1024) char bytes[];
  const Memory memory{bytes};
  const Sizes& size = a.size;
  Place p;
  const int b = int(blockIdx.x) / size.heads, h = int(blockIdx.x) % size.heads,
            kh = h / (size.heads / size.groups), segment = int(blockIdx.y),
            begin = segment * size.per_segment, end = min(size.chunks, begin + size.per_segment);
  const bool keys = a.k.data;
  const uint8_t* const hidden = a.hidden_of(b);

  const auto load = [&](int c, int stage) {
    const Operand to = memory.stage(stage);
    const int at = size.first + c * chunk;
    copy_queries(to, a, b, h, at);
    if (keys) copy_keys(to, a, b, kh, at, hidden);
    ptx::commit();
  };

  load(begin, 0);
  State<Memory> state(memory);
  state.load(p, a.before.at(b * size.groups + kh, segment), size, true);
  wait_for_copies();
#pragma unroll 1
  for (int c = begin; c < end; ++c) {
    const int stage = Memory::stage_of(c - begin);
    if (Memory::stages == 2 && c + 1 < end) load(c + 1, stage ^ 1);
    const Operand in = memory.stage(stage);
    p.make_opaque();
    write_query_gradients(a, b, h, size.first + c * chunk - size.shift, p, in, state, memory.own(),
                          keys);
    if (keys) state.add_keys(p, in);
    if (c + 1 == end) break;
    __syncthreads();
    if (keys) state.share(p);
    if (Memory::stages == 1) load(c + 1, 0);
    wait_for_copies();
  }
}

/// r = 1 / total and e of a chunk's queries, in shared memory.
struct QueryFactors {
  const float* data;  // [2, 64]

  /// The values of queries 16 y + 8 j …, in the order of sums' columns.
  __device__ float2 r(const Place& p, int y, int j) const { return at(16 * y + 8 * j + p.column); }
  __device__ float2 e(const Place& p, int y, int j) const {
    return at(chunk + 16 * y + 8 * j + p.column);
  }
  __device__ float2 at(int i) const { return *reinterpret_cast<const float2*>(data + i); }
};

/// d += [tril(a bᵀ − e) r]ᵀ c, with e only if less_e, for the warp's keys of `a` and queries of `b`
/// and `c`, some blocks of 16 queries at a time; also(x, operand) as in multiply_rows().
template <bool less_e, class T, Widths W, class Rows, class To, class Also>
__device__ __forceinline__ void add_weighted(HalfRows<To::columns>& d, const Place& p,
                                             const Rows& a, const Rows& b, const To& c,
                                             const QueryFactors& factors, bool queries,
                                             const Also& also) {
  constexpr int blocks = Registers<T, W>::query_blocks;
  const BlockRange range{queries ? p.warp_row : 4, 4};
#pragma unroll 1
  for (int y0 = 0; y0 < 4; y0 += blocks) {
    float weights[blocks][2][4] = {};
    multiply_rows<Registers<T, W>::steps>(weights, p, a, b, y0, range,
                                          [&](int x, const FragmentOf<T>& operand) {
                                            if (y0 == 0) also(x, operand);
                                          });
#pragma unroll
    for (int x = 0; x < blocks; ++x)
      if (range.has(y0 + x)) {
        float(&w)[2][4] = weights[x];
#pragma unroll
        for (int j = 0; j < 2; ++j) {
          const float2 r = factors.r(p, y0 + x, j),
                       e = less_e ? factors.e(p, y0 + x, j) : float2{0, 0};
#pragma unroll
          for (int i = 0; i < 2; ++i) {
            w[j][2 * i] = (w[j][2 * i] - e.x) * r.x;
            w[j][2 * i + 1] = (w[j][2 * i + 1] - e.y) * r.y;
          }
        }
        if (y0 + x == p.warp_row) mask_diagonal<true>(p, w);
        multiply_half(d, p, packed<FragmentOf<T>>(w), c, 16 * (y0 + x));
      }
  }
}

/// dk and dv of the warp's keys of a chunk, summed over the queries' heads.
template <class T, Widths W>
struct KeyGradients {
  HalfRows<W.features> dk = {};
  HalfRows<W.values> dv = {};

  /// Adds a head's terms and, with the first head, those of the state T, w.
  template <class S>
  __device__ __forceinline__ void add(const Place& p, const Chunk<T, W>& in, const S& state,
                                      const QueryFactors& factors, bool queries, bool first) {
    if (first)
#pragma unroll
      for (int i = 0; i < W.values / 4; ++i) dv[i / 16][i / 8 % 2][i / 4 % 2][i % 4] = 0;
    add_weighted<false, T, W>(dv, p, in.k, in.q, in.g, factors, queries,
                              [&](int x, const FragmentOf<T>& k) {
                                if (first) state.multiply_by(dv, p, k, 16 * x);
                              });
    if (first) with_z(dk, state.line.data, p, [](float& x, int, float w) { x = w; });
    add_weighted<true, T, W>(dk, p, in.v, in.g, in.q, factors, queries,
                             [&](int x, const FragmentOf<T>& v) {
                               if (first) state.multiply_by_transposed(dk, p, v, 16 * x);
                             });
  }
  __device__ __forceinline__ void store(const Args<T>& a, int b, int kh, int first, const Place& p,
                                        const uint8_t* hidden) const {
    T *key_rows[2], *value_rows[2];
    float by[2];
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int row = first + p.chunk_row(i);
      key_rows[i] = row_or_null(a.dk, b, kh, row, a.size.n);
      value_rows[i] = row_or_null(a.dv, b, kh, row, a.size.n);
      by[i] = key_rows[i] && hidden && hidden[row] ? 0 : 1;
    }
    store_half(key_rows, dk, by, p, a.size.f);
    store_half(value_rows, dv, by, p, a.size.dv);
  }
};

/// T += Σ r q gᵀ and w −= Σ r e q over a chunk's queries.
template <class T, Widths W, class S>
__device__ __forceinline__ void add_queries(S& state, const Place& p, const Chunk<T, W>& in,
                                            const QueryFactors& factors) {
  state.template add<RowSums<float>>(p, in.g, [&](int j, int x, RowSums<float>* sums) {
    const auto q = columns_of<Side::left>(in.q, 16 * x, state.feature(p, j));
    WideFragmentOf<T> scaled;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const float2 r = factors.r(p, x, i % 2), two = q.values(i / 2, i % 2),
                   both = {two.x * r.x, two.y * r.y};
      scaled.set(i / 2, i % 2, both);
      if (!sums) continue;
      const float2 e = factors.e(p, x, i % 2);
      sums->add(i / 2, -(both.x * e.x + both.y * e.y));
    }
    return scaled;
  });
}

/// A block's steps in the keys' sweep: chunks from the last one on, each once per head.
struct KeySteps {
  int b, kh, heads, first_head, begin, count;

  __device__ KeySteps(const Sizes& s, bool queries)
      : b(int(blockIdx.x) / s.groups),
        kh(int(blockIdx.x) % s.groups),
        heads(queries ? s.heads / s.groups : 1),
        first_head(kh * heads),
        begin(int(blockIdx.y) * s.per_segment),
        count((min(s.chunks, begin + s.per_segment) - begin) * heads) {}
  __device__ int head(int step) const { return first_head + step % heads; }
  /// The first key of a step's chunk.
  __device__ int first(const Sizes& s, int step) const {
    return s.first + (s.chunks - 1 - (begin + step / heads)) * chunk;
  }
};

/// dk and dv, or only T and w; without queries, T and w are those of all queries. Grid: [B G,
/// segments], with segments from the last chunk on
template <class Memory>
__global__ void __launch_bounds__(threads, 1)
    linear_attention_keys(const __grid_constant__ Args<typename Memory::Element> a) {
  using Operand = typename Memory::Operand;
  extern __shared__ __align__(1024) char bytes[];
  const Memory memory{bytes};
  const Sizes& size = a.size;
  Place p;
  const bool queries = a.q.data, outputs = a.dk.data;
  const KeySteps steps(size, queries);
  const uint8_t* const hidden = a.hidden_of(steps.b);
  float* const factors = memory.own();  // [2][r, e][64]

  const auto load = [&](int step, int stage) {
    const Operand to = memory.stage(stage);
    const int at = steps.first(size, step), h = steps.head(step), b = steps.b, kh = steps.kh;
    if (queries) copy_queries(to, a, b, h, at);
    if (outputs) copy_keys(to, a, b, kh, at, hidden);
    ptx::commit();
  };
  // The first 64 threads load r, the next 64 load e.
  const auto factor = [&](int step) -> float {
    if (!queries || threadIdx.x >= 2 * chunk) return 0;
    const int row = steps.first(size, step) - size.shift + int(threadIdx.x) % chunk;
    const int64_t first = (int64_t(steps.b) * size.heads + steps.head(step)) * size.m;
    if (threadIdx.x < chunk) return factor_of(a, first, row);
    return row >= 0 && row < size.m ? a.slopes[first + row] : 0;
  };
  const auto share_factor = [&](int step, float x) {
    if (threadIdx.x < 2 * chunk) factors[step % 2 * 2 * chunk + threadIdx.x] = x;
  };

  load(0, 0);
  share_factor(0, factor(0));
  State<Memory> state(memory);
  state.load(p, a.before.at(int(blockIdx.x), int(blockIdx.y)), size, outputs);
  wait_for_copies();
  KeyGradients<typename Memory::Element, Memory::widths> gradients;
#pragma unroll 1
  for (int step = 0; step < steps.count; ++step) {
    const int stage = Memory::stage_of(step);
    const bool more = step + 1 < steps.count;
    if (Memory::stages == 2 && more) load(step + 1, stage ^ 1);
    const float next_factor = more ? factor(step + 1) : 0;
    const Operand in = memory.stage(stage);
    p.make_opaque();
    const QueryFactors now{factors + step % 2 * 2 * chunk};
    if (outputs) {
      gradients.add(p, in, state, now, queries, step % steps.heads == 0);
      if (step % steps.heads == steps.heads - 1)
        gradients.store(a, steps.b, steps.kh, steps.first(size, step), p, hidden);
    }
    if (queries) add_queries(state, p, in, now);
    if (!more) break;
    share_factor(step + 1, next_factor);
    __syncthreads();
    if (outputs && queries) state.share(p);
    if (Memory::stages == 1) load(step + 1, 0);
    wait_for_copies();
  }
  if (a.after.data) state.store(p, a.after.at(int(blockIdx.x), int(blockIdx.y)), size);
}

constexpr const char* op = "linear_attention_backward";

template <class T>
void start_keys(int device, int64_t blocks, int segments, const Args<T>& args) {
  launch_chunks<backward_tiles>(op, device, blocks, segments, args,
                                [&]<class Memory>() { return linear_attention_keys<Memory>; });
}

}  // namespace
}  // namespace linear

using namespace linear;

void linear_attention_backward(const LinearAttentionOperands& in, const Tensor& totals,
                               const Tensor& grad, const Tensor& grad_after,
                               const LinearAttentionGradients& to) {
  const Tensor q = aligned_rows(in.q), k = aligned_rows(in.k), v = aligned_rows(in.v),
               g = aligned_rows(grad), slopes = empty_like(totals);
  const int64_t blocks = q.size(0) * q.size(1), units = k.size(0) * k.size(1);
  const int device = q.device().index;
  const auto sizes = [&](int length) {
    Sizes s = sizes_of(q, k, v);
    in.causal ? causal_chunks(s) : plain_chunks(s, length);
    return s;
  };
  Sizes of_q = sizes(int(q.size(2))), of_k = sizes(int(k.size(2)));
  const int64_t state = int64_t(of_q.f) * (of_q.dv + 1);
  const int q_segments = cut(of_q, blocks);
  const KeyStates states = key_states(in, k, v, of_q, q_segments, {});
  dispatch_among<float, BFloat16>(q.dtype(), [&]<class T>() {
    Args<T> all = args_of<T>(in, of_q);
    all.q = head_rows<const T>(q), all.k = head_rows<const T>(k), all.v = head_rows<const T>(v);
    all.g = head_rows<const T>(g), all.totals = totals.data<float>();
    all.dq = head_rows<T>(to.q), all.dk = head_rows<T>(to.k), all.dv = head_rows<T>(to.v);
    all.slopes = slopes.data<float>();
    Args<T> args = all;
    if (!in.causal) args.k = args.v = {};
    args.before = states.at;
    launch_chunks<backward_tiles>(op, device, blocks, q_segments, args,
                                  [&]<class Memory>() { return linear_attention_queries<Memory>; });

    // T of each segment, then the sums before each segment; bidirectional, the
    // sum over all queries.
    args = all;
    const float* const last = data_or_null<float>(grad_after);
    float* const first = data_or_null<float>(to.before);
    int segments = cut(of_k, units);
    Tensor sums, total;
    if (!in.causal || segments > 1) {
      Sizes of_sums = in.causal ? of_k : of_q;
      const int parts = in.causal ? segments : cut(of_sums, units);
      sums = empty({units, parts, state}, options_of(totals));
      args.dk = args.dv = {};
      args.size = of_sums;
      args.after = {sums.data<float>(), parts * state, state};
      start_keys(device, units, parts, args);
      if (!in.causal) total = first ? to.before : empty({units, state}, options_of(totals));
      before_segments(op, device, sums.data<float>(), units, parts, state, last,
                      in.causal ? first : total.data<float>());
      args = all;
      args.before = {data_or_null<float>(in.causal ? sums : total),
                     in.causal ? parts * state : state, in.causal ? state : 0};
    } else {
      args.before = {last, state, 0};
      args.after = {first, state, 0};
    }
    if (!in.causal) args.q = args.g = {};
    args.size = of_k;
    start_keys(device, units, segments, args);
  });
}

}  // namespace stretto::cuda
