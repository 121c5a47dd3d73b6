// Fused attention, backward: gradients of queries and of position queries.
//
// A warp owns 16 or 32 queries and iterates over the keys that any query of its block sees in
// steps, as forward does (the drawing is in attention_query_warp.cuh):
//
//   δ = −Σ out ∘ g                          also for the kernels of keys and relative positions
//   for each step of keys:
//     P  = 2^(scores − sums)                hidden keys: 0
//     dP = g Vᵀ (+ strip of g · value table)    0 where dropout drops P
//     dS = P ∘ (dP + δ)                     also the gradient of a dense bias
//     dQ += dS K;  dp += strip of dS · rows of the table
//
// A warp skips the keys at the end that none of its queries sees. dS is added to the gradient of a
// dense bias in place: batch entries and heads that share a bias run one after the other, in a
// launch each.
//
// Register pressure is high, most of all with two slabs and a table (L::stats_in_shared): then sums
// and deltas stay in shared memory, and products whose operands are loaded are loops. Tested
// against the composed implementation in f64.
#include "cuda/attention/attention_query_warp.cuh"
#include "cuda/attention/attention_tiles.cuh"

namespace stretto::cuda {
namespace {

template <AttentionTile T>
struct QueriesLayout : AttentionLayout<T> {
  using Base = AttentionLayout<T>;
  using Base::all, Base::has_p, Base::row, Base::rows, Base::slabs, Base::step, Base::table;
  static constexpr int columns = T.head / 16, ring = tile::ring_of(rows + 2 * step);
  using Ring = tile::Area<BFloat16, T.head, ring, T.parts>;
  static constexpr bool stats_in_shared = table && slabs > 1;
  static constexpr int loop = stats_in_shared && has_p ? 1 : columns;
  static constexpr RegisterUse use = {.p_held = has_p ? T.g_steps == columns : T.q_steps > 0,
                                      .q_unrolled = loop,
                                      .p_unrolled = loop,
                                      .g_unrolled = stats_in_shared ? 1 : columns,
                                      .bias_first = true};
  static constexpr int blocks_per_sm = T.parts == 1 ? 8 / T.warps : 1;

  static constexpr int q = 0, g = q + rows * row, p = has_p ? g + rows * row : q;
  static constexpr int k = (has_p ? p : g) + rows * row, v = k + 2 * step * row;
  static constexpr int r = v + 2 * step * row, values = r + (table ? ring * row : 0);
  static constexpr int bias = values + (all ? ring * row : 0), stats = bias + ring * 4;
  static constexpr int delta = stats + (stats_in_shared ? rows * 4 : 0), bytes = delta + rows * 4;
};

template <class L>
struct QueriesWarp : QueryWarp<L> {
  using Base = QueryWarp<L>;
  using Base::base, Base::begin, Base::end, Base::iw, Base::lane, Base::last, Base::pw, Base::shear,
      Base::tiles, Base::unit, Base::warp;
  using typename Base::Keys, typename Base::Operand;
  using Scores = float[L::slabs][tiles][4];
  const char* const shared;
  OwnRows<L, L::config.q_steps> q;
  OwnRows<L, L::config.g_steps> g;
  OwnRows<L, L::has_p && L::use.p_held ? L::columns : 0> own_p;
  float dq[L::slabs][L::head / 8][4] = {}, dp[L::has_p ? L::slabs : 1][L::head / 8][4] = {};
  float stats[2][L::stats_in_shared ? 1 : L::slabs][2];  // sums and deltas
  StripProduct<L> to_table;
  float value_strip[1][L::all ? tiles + 2 : 1][4];

  __device__ QueriesWarp(const AttentionArgs& a, const char* smem)
      : Base(a, smem,
             L::all ? a.grid.first_unit + int(blockIdx.x) * a.grid.unit_step : int(blockIdx.x)),
        shared(smem),
        q(base, L::q),
        g(base, L::g),
        own_p(base, L::p) {}

  __device__ const auto& p() const {
    if constexpr (L::has_p)
      return own_p;
    else
      return q;
  }
  __device__ bool has_rows(const AttentionArgs& a) const { return !L::all || a.table.count > 0; }
  __device__ bool has_value_rows(const AttentionArgs& a) const {
    return L::all && a.value_table.count > 0;
  }
  __device__ int64_t line(const AttentionArgs& a) const { return int64_t(unit) * a.sizes.m; }
  /// Row `row` of the warp's deltas or, if they are in shared memory, sums.
  __device__ float* stat(int area, int row) const {
    return reinterpret_cast<float*>(const_cast<char*>(shared) + area) + L::own * warp + row;
  }
  __device__ float sum(int sl, int half) const { return stats_of(0, sl, half); }
  __device__ float delta(int sl, int half) const { return stats_of(1, sl, half); }
  __device__ float stats_of(int which, int sl, int half) const {
    if constexpr (L::stats_in_shared)
      return *stat(L::stats + which * L::rows * 4, 16 * sl + 8 * half + lane / 4);
    else
      return stats[which][sl][half];
  }

  /// Copies the block's own rows, its first keys and relative positions; computes
  /// the deltas meanwhile.
  __device__ void load(const AttentionArgs& a) {
    {
      const auto [b, h, kh] = a.place(unit);
      const auto rows = [&, b = b, h = h](int area, const OperandRows<const void>& from) {
        tile::copy_rows<L::threads, L::rows>(typename L::Own{base + area}, from.source(b, h),
                                             Base::i0, a.sizes.m);
      };
      rows(L::q, a.operands.q);
      rows(L::g, a.operands.g);
      if constexpr (L::has_p) rows(L::p, a.operands.p);
    }
    Base::load_first(a, begin);
    if constexpr (L::stats_in_shared) {
      if (last > begin)
        tile::copy_line<L::threads, L::rows>(base + L::stats, a.results.sums + line(a), Base::i0,
                                             a.sizes.m);
    }
    ptx::commit();
    compute_delta<L>(a, unit, iw, stat(L::delta, 0));
    tile::wait_for_copies();
    q.hold();
    g.hold();
    own_p.hold();
    if constexpr (!L::stats_in_shared) {
#pragma unroll
      for (int sl = 0; sl < L::slabs; ++sl)
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          const int i = Base::query(sl, half);
          stats[0][sl][half] = i < a.sizes.m ? a.results.sums[line(a) + i] : INFINITY;
          stats[1][sl][half] = *stat(L::delta, 16 * sl + 8 * half + lane / 4);
        }
    }
  }

  template <int Count>
  __device__ void extend_value_strip(int relative, int place) {
    Base::template add_to_strip<Count>(
        value_strip, place, 0, [&](int sl, int x) { return g.load(sl, x); }, L::values, relative,
        L::head / 16, false);
  }
  /// Computes the tiles that the strips carry into the step from j0 on.
  __device__ void start_strips(const AttentionArgs& a, int j0) {
    Base::start_strip(a, p(), j0);
    if constexpr (L::all) {
      if (end > j0 && has_value_rows(a)) extend_value_strip<2>(j0 - pw - 15, 0);
    }
  }
  /// Adds the tiles of the position queries' gradient that are still carried.
  __device__ void finish_strip(const AttentionArgs& a) {
    if constexpr (L::table) {
      if (Base::carries())
        to_table.finish(position_gradient(), Base::ring(L::r), Base::carried_relative(), shear,
                        a.table_steps<L>());
      Base::carried_out_of = -1;
    }
  }
  /// Continues at a step that does not follow the one before.
  __device__ void jump(const AttentionArgs& a, int to) {
    finish_strip(a);
    if constexpr (L::table) __syncthreads();  // the relative positions are no longer needed
    Base::load_first(a, to);
    ptx::commit();
    tile::wait_for_copies();
    start_strips(a, to);
  }

  /// Converts scores to weights, divided by their sum in bf16 and multiplied by the derivative of the
  /// soft cap.
  __device__ void weights(const AttentionArgs& a, Scores& s, int j0, Sight sight) const {
#pragma unroll
    for (int sl = 0; sl < L::slabs; ++sl) {
      const float sums[2] = {sum(sl, 0), sum(sl, 1)};
#pragma unroll
      for (int n = 0; n < tiles; ++n)
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          const float slope = L::extended ? a.cap_slope(s[sl][n][e]) : 1;
          s[sl][n][e] = weight<L::all>(s[sl][n][e], a.scale.log2e, sums[e >> 1],
                                       max_exponent<L::parts, true>);
          if constexpr (L::extended) s[sl][n][e] *= slope;
        }
    }
    Base::hide(a, s, j0, 0.f, sight);
  }

  /// dP + δ, the gradients of weights minus their mean; without dropout sums begin with δ.
  __device__ void weight_gradients(const AttentionArgs& a, Scores& ds, const Keys& at,
                                   const KeptWeights<L::slabs, tiles>& kept) {
    const bool drop = Base::drops(a);
#pragma unroll
    for (int sl = 0; sl < L::slabs; ++sl) {
      const float first[2] = {drop ? 0.f : delta(sl, 0), drop ? 0.f : delta(sl, 1)};
#pragma unroll
      for (int n = 0; n < tiles; ++n)
#pragma unroll
        for (int e = 0; e < 4; ++e) ds[sl][n][e] = first[e >> 1];
    }
    if constexpr (L::all) {
      if (has_value_rows(a)) add_value_term(ds, at.first);
    }
    constexpr int held = L::config.g_steps;
    const auto values = at.v + Base::as_columns;
    tile::multiply_transposed<tile::Steps{.end = held}>(ds, g, values);
    tile::multiply_transposed<tile::Steps{.begin = held, .unrolled = L::use.g_unrolled}>(
        ds, [&](int sl, int x) { return g.load(sl, x); }, values);
    if (drop) {
#pragma unroll
      for (int sl = 0; sl < L::slabs; ++sl)
#pragma unroll
        for (int x = 0; x < 4 * tiles; ++x) {
          float& d = ds[sl][x / 4][x % 4];
          d = (kept.has(sl, x / 4, x % 4) ? d * a.dropout.keep_scale : 0) + delta(sl, x / 2 % 2);
        }
    }
  }

  /// Adds the value table's term of the weights' gradients: a strip of the outputs' gradients.
  __device__ void add_value_term(Scores& ds, int j0) {
    extend_value_strip<tiles>(j0 - pw + 1, 2);
#pragma unroll
    for (int n = 0; n < tiles; ++n) {
      float x[4];
      shear.scores(x, value_strip[0][n], value_strip[0][n + 1], value_strip[0][n + 2]);
#pragma unroll
      for (int e = 0; e < 4; ++e) ds[0][n][e] += x[e];
    }
#pragma unroll
    for (int c = 0; c < 2; ++c)
#pragma unroll
      for (int e = 0; e < 4; ++e) value_strip[0][c][e] = value_strip[0][tiles + c][e];
  }

  /// Adds the scores' gradients to the gradient of a dense bias.
  __device__ void add_to_dense(const AttentionArgs& a, Scores& ds, int j0) const {
    const stretto::cuda::Scores& to = a.gradients.dense;
    if (!to.data) return;
    float* const first = to.of<float>(a.place(unit).b, a.place(unit).h);
    each_score<false>(ds, iw, j0, [&](int query, int key, float x) {
      if (query < a.sizes.m && key < a.sizes.n) first[query * to.query + key * to.key] += x;
    });
  }

  /// dQ += dS K; dp += dS, as a strip, times the rows of the table.
  __device__ void query_gradients(const AttentionArgs& a, const Scores& ds, const Keys& at) {
    const auto keys = at.k + Base::as_rows;
#pragma unroll
    for (int x = 0; x < tiles / 2; ++x) {
      Operand left[L::slabs];
#pragma unroll
      for (int sl = 0; sl < L::slabs; ++sl) tile::pack(left[sl], ds[sl][2 * x], ds[sl][2 * x + 1]);
      tile::multiply(dq, left, keys + x * 16 * L::Step::pitch);
      if constexpr (L::table) {
        if (has_rows(a))
          to_table.add(position_gradient(), left, Base::ring(L::r), at.first - pw - 15 + 16 * x,
                       shear, a.table_steps<L>());
      }
    }
  }
  __device__ auto& position_gradient() {
    if constexpr (L::has_p)
      return dp;
    else
      return dq;
  }

  __device__ void step(const AttentionArgs& a, int j0) {
    const Sight sight = a.sight<L::extended>(unit, iw, L::own, j0, L::step);
    if (L::extended && !L::table && sight == Sight::none) return;
    const Keys at = Base::keys(j0);
    KeptWeights<L::slabs, tiles> kept;
    if (Base::drops(a)) draw_rows(kept, a, unit, iw, j0);
    Scores s = {}, ds;
    Base::template scores<tiles>(a, s, at, q, p());
    weights(a, s, j0, sight);
    weight_gradients(a, ds, at, kept);
#pragma unroll
    for (int sl = 0; sl < L::slabs; ++sl)
#pragma unroll
      for (int n = 0; n < tiles; ++n)
#pragma unroll
        for (int e = 0; e < 4; ++e) ds[sl][n][e] *= s[sl][n][e];
    if constexpr (L::all) add_to_dense(a, ds, j0);
    query_gradients(a, ds, at);
  }

  __device__ void store(const AttentionArgs& a) {
    finish_strip(a);
    const bool is_shared = L::all && !a.gradients.p.data;  // queries are position queries too
    if (is_shared) {
#pragma unroll
      for (int x = 0; x < L::head / 8; ++x)
#pragma unroll
        for (int e = 0; e < 4; ++e) dq[0][x][e] += dp[0][x][e];
    }
    const auto [b, h, kh] = a.place(unit);
#pragma unroll
    for (int sl = 0; sl < L::slabs; ++sl)
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int i = Base::query(sl, half);
        put_row<L>(a.gradients.q, b, h, i, a.sizes.m,
                   [&](int x, int e) { return dq[sl][x][2 * half + e] * a.scale.score; });
        if constexpr (L::has_p) {
          if (!is_shared)
            put_row<L>(a.gradients.p, b, h, i, a.sizes.m,
                       [&](int x, int e) { return dp[sl][x][2 * half + e] * a.scale.score; });
        }
      }
  }
};

/// dq and dp [B, H, M, D] and delta [B, H, M] from q, k, v, g and out [B, H, M, Dv] and
/// sums [B, H, M]
template <class L>
__global__ void __launch_bounds__(L::threads, L::blocks_per_sm)
    attention_queries(const __grid_constant__ AttentionArgs a) {
  extern __shared__ __align__(256) char smem[];
  QueriesWarp<L> warp(a, smem);
  warp.load(a);
  warp.start_strips(a, warp.begin);
  int next;
#pragma unroll 1
  for (int j0 = warp.begin; j0 < warp.last; j0 = next) {
    next = warp.next_step(a, j0);
    const bool follows = !L::extended || next == j0 + L::step;
    if (follows && next < warp.last) {
      copy_step<L>(a, warp.base, warp.unit, next);
      copy_relative<L, L::step>(a, warp.base, warp.unit, next - warp.p0 + 1);
    }
    ptx::commit();
    if (j0 < warp.end) {
      warp.step(a, j0);
      warp.carried_out_of = j0;
    }
    tile::wait_for_copies();  // the next keys have arrived, and these are no longer needed
    if (L::extended && !follows) warp.jump(a, next);
  }
  warp.store(a);
}

}  // namespace

void launch_attention_queries(AttentionArgs a, int d, int device) {
  // The batch entries and heads of a launch.
  const int batch = a.gradients.dense.data && a.gradients.dense.batch == 0 ? 1 : a.sizes.batch;
  const int heads = a.gradients.dense.data && a.gradients.dense.head == 0 ? 1 : a.sizes.heads;
  a.grid.unit_step = heads == 1 ? a.sizes.heads : 1;
  with_tile<queries_tile>(a, d, [&]<AttentionTile T>() {
    using L = QueriesLayout<T>;
    for (int b = 0; b < a.sizes.batch; b += batch)
      for (int h = 0; h < a.sizes.heads; h += heads) {
        a.grid.first_unit = b * a.sizes.heads + h;
        launch_with_shared("attention", device, attention_queries<L>,
                           dim3(unsigned(batch * heads), unsigned(ceil_div(a.sizes.m, L::rows))),
                           dim3(L::threads), L::bytes, a);
      }
  });
}

}  // namespace stretto::cuda
