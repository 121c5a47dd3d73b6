// Fused attention, forward (FlashAttention-2, Dao 2023; the treatment of relative positions is our
// own). A strip is here the product of a warp's queries with rows of the key table,
// [16 queries, relative positions].
//
// A warp owns 16 or 32 queries and iterates over the keys that any query of its block sees, in
// steps (the drawing is in attention_query_warp.cuh). Scores, weights and the sum of the output
// stay in registers (online softmax):
//
//   for each step of keys:
//     s = scores                             hidden keys: −∞
//     row_max rises if s · log2e_scale > row_max + 8 anywhere: acc and row_sum are scaled
//     w = 2^(s · log2e_scale − row_max)
//     row_sum += w
//     acc += w V (+ strip of w · value table)    w after dropout
//   out = acc / row_sum
//
// A warp skips the last keys if none of its queries sees them: whole steps, or half steps if a step
// has 64 keys. If a warp owns 32 queries and the mask is causal, the keys on the diagonal are a
// block of their own: no relative positions above 0 are computed in it, and the first 16 queries
// skip its second half.
//
// row_max rises only if the largest exponent exceeds it by more than 8: any number close to the
// maximum is as good. It is rounded before it is subtracted, once for all weights, so that for
// large scores all weights of a row have the same rounding error.
//
// The rows of the value table are in a ring buffer, like those of the key table
// (attention_query_warp.cuh). Weights are sheared back into a strip, [16 queries, relative
// positions], which is multiplied by these rows. Tiles of the strip that straddle two steps are
// carried in bf16. In the kernels that are compiled for all terms (L::all), row_max is therefore
// an integer: carried tiles are scaled by powers of 2.
//
// Sums over keys are taken in the order of the steps by the one warp that owns the query. In bf16,
// row_sum is the sum of the weights after rounding to bf16, the same numbers that multiply the
// values; it is computed as a matrix product with ones. The output is then a weighted mean of the
// values, so that backward's δ cancels if all values are equal. Tested against the composed
// implementation in f64.
#include "cuda/attention/attention_query_warp.cuh"
#include "cuda/attention/attention_tiles.cuh"

namespace stretto::cuda {
namespace {

template <AttentionTile T>
struct ForwardLayout : AttentionLayout<T> {
  using Base = AttentionLayout<T>;
  using Base::all, Base::has_p, Base::row, Base::rows, Base::slabs, Base::step, Base::table;
  static constexpr int columns = T.head / 16, ring = tile::ring_of(rows + 2 * step);
  using Ring = tile::Area<BFloat16, T.head, ring, T.parts>;
  static constexpr RegisterUse use = {
      .p_held = !has_p, .q_unrolled = columns, .p_unrolled = has_p ? 1 : columns};

  static constexpr int q = 0, p = has_p ? rows * row : 0, k = p + rows * row;
  static constexpr int v = k + 2 * step * row, r = v + 2 * step * row;
  static constexpr int values = r + (table ? ring * row : 0);
  static constexpr int bias = values + (all ? ring * row : 0), bytes = bias + ring * 4;
};

template <class L>
struct ForwardWarp : QueryWarp<L> {
  using Base = QueryWarp<L>;
  using Base::base, Base::end, Base::i0, Base::iw, Base::lane, Base::pw, Base::shear, Base::unit;
  using typename Base::Keys, typename Base::Operand;
  static constexpr uint32_t all_lanes = 0xffffffffu;
  OwnRows<L, L::columns> q;
  OwnRows<L> own_p;
  float acc[L::slabs][L::head / 8][4] = {}, row_max[L::slabs][2];
  float row_sum[L::slabs][4] = {};  // of the lane's two rows [2 · half], in mma()'s layout
  StripProduct<L> to_values;

  __device__ ForwardWarp(const AttentionArgs& a, const char* smem)
      : Base(a, smem, int(blockIdx.x)), q(base, L::q), own_p(base, L::p) {
    // The sums begin with the sink, whose exponent is rounded up to an integer. In f32 one of the
    // four lanes of a row has it.
    const float sink = a.sinks ? a.sinks[a.place(unit).h] : -INFINITY;
    const float top = fmaxf(ceilf(sink), -1e30f);
    const float sum = L::parts == 1 || lane % 4 == 0 ? ptx::ex2(sink - top) : 0;
#pragma unroll
    for (int sl = 0; sl < L::slabs; ++sl) {
      row_max[sl][0] = row_max[sl][1] = top;
      row_sum[sl][0] = row_sum[sl][2] = sum;
      row_sum[sl][1] = row_sum[sl][3] = L::parts == 1 ? sum : 0;
    }
  }
  __device__ const auto& p() const {
    if constexpr (L::has_p)
      return own_p;
    else
      return q;
  }

  /// Copies the block's queries, its first keys and relative positions.
  __device__ void load(const AttentionArgs& a) {
    {
      const auto [b, h, kh] = a.place(unit);
      const auto rows = [&, b = b, h = h](int area, const OperandRows<const void>& from) {
        tile::copy_rows<L::threads, L::rows>(typename L::Own{base + area}, from.source(b, h), i0,
                                             a.sizes.m);
      };
      rows(L::q, a.operands.q);
      if constexpr (L::has_p) rows(L::p, a.operands.p);
    }
    Base::load_first(a, Base::begin);
    ptx::commit();
    tile::wait_for_copies();
    q.hold();
    Base::start_strip(a, p(), Base::begin);
  }
  /// Continues at a step that does not follow the one before.
  __device__ void jump(const AttentionArgs& a, int to) {
    finish_strip(a);
    if constexpr (L::all) __syncthreads();  // the relative positions are no longer needed
    Base::load_first(a, to);
    ptx::commit();
    tile::wait_for_copies();
    Base::start_strip(a, p(), to);
  }
  /// Adds the values' tiles that are still carried.
  __device__ void finish_strip(const AttentionArgs& a) {
    if constexpr (L::all) {
      if (Base::carries() && a.value_table.count > 0)
        to_values.finish(acc, Base::ring(L::values), Base::carried_relative(), shear);
      Base::carried_out_of = -1;
    }
  }

  /// Processes 8 · K keys, from key j0 on.
  template <int K, bool Diagonal>
  __device__ void attend(const AttentionArgs& a, int j0) {
    const Sight sight = a.sight<L::extended>(unit, iw, L::own, j0, 8 * K);
    if (L::extended && !L::table && sight == Sight::none) return;
    const Keys at = Base::keys(j0);
    const bool drop = Base::drops(a);
    KeptWeights<L::slabs, K> kept;
    if (drop) draw_rows(kept, a, unit, iw, j0);
    float s[L::slabs][K][4] = {};
    Base::template scores<K, Diagonal>(a, s, at, q, p());
    Base::hide(a, s, j0, -INFINITY, sight, Diagonal);
    move_row_max(a, s);
    weights(a, s);
    if (L::parts > 1 && drop) {
#pragma unroll
      for (int sl = 0; sl < L::slabs; ++sl)
#pragma unroll
        for (int x = 0; x < 4 * K; ++x)
          if (!kept.has(sl, x / 4, x % 4)) s[sl][x / 4][x % 4] = 0;
    }
    add_values<K, Diagonal>(a, s, kept, at);
  }

  /// Raises row_max to the largest exponent where that exceeds it by more than 8.
  template <int K>
  __device__ void move_row_max(const AttentionArgs& a, const float (&s)[L::slabs][K][4]) {
    const auto grown = [&](float max, float from) { return max * a.scale.log2e > from + 8; };
    float max[L::slabs][2];
    bool any = false;
#pragma unroll
    for (int sl = 0; sl < L::slabs; ++sl)
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        max[sl][half] = -1e30f;
#pragma unroll
        for (int n = 0; n < K; ++n)
          max[sl][half] = fmaxf(max[sl][half], fmaxf(s[sl][n][2 * half], s[sl][n][2 * half + 1]));
        any |= grown(max[sl][half], row_max[sl][half]);
      }
    if (!__any_sync(all_lanes, any)) return;
#pragma unroll
    for (int sl = 0; sl < L::slabs; ++sl)
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const float m = tile::quad_max(max[sl][half]);
        const float to = L::all ? ceilf(m * a.scale.log2e) : m * a.scale.log2e;
        float& from = row_max[sl][half];
        const bool moves = grown(m, from);
        const float factor = moves ? ptx::ex2(from - to) : 1.f;
        if (moves) from = to;
        row_sum[sl][2 * half] *= factor;
        row_sum[sl][2 * half + 1] *= factor;
#pragma unroll
        for (int x = 0; x < L::head / 8; ++x) {
          acc[sl][x][2 * half] *= factor;
          acc[sl][x][2 * half + 1] *= factor;
        }
        if constexpr (L::all) to_values.back[sl].scale(half, factor);
      }
  }

  /// Converts scores to weights; in f32 also adds them to row_sum.
  template <int K>
  __device__ void weights(const AttentionArgs& a, float (&s)[L::slabs][K][4]) {
#pragma unroll
    for (int sl = 0; sl < L::slabs; ++sl)
#pragma unroll
      for (int half = 0; half < 2; ++half)
#pragma unroll
        for (int n = 0; n < K; ++n)
#pragma unroll
          for (int e = 2 * half; e < 2 * half + 2; ++e) {
            s[sl][n][e] = weight<L::all>(s[sl][n][e], a.scale.log2e, row_max[sl][half],
                                         max_exponent<L::parts, false>);
            if constexpr (L::parts > 1) row_sum[sl][2 * half] += s[sl][n][e];
          }
  }

  /// Adds weights times values to acc, and in bf16 the weights to row_sum.
  template <int K, bool Diagonal>
  __device__ void add_values(const AttentionArgs& a, const float (&s)[L::slabs][K][4],
                             const KeptWeights<L::slabs, K>& kept, const Keys& at) {
    constexpr int seen = Diagonal && L::slabs == 2 ? K / 2 : K;  // tiles that slab 0 sees
    constexpr uint32_t ones = 0x3f803f80;                        // a pair of bf16 ones
    const bool drop = Base::drops(a);
    const auto values = at.v + Base::as_rows;
#pragma unroll
    for (int x = 0; x < K / 2; ++x) {
      Operand left[L::slabs];
#pragma unroll
      for (int sl = 0; sl < L::slabs; ++sl) {
        tile::pack(left[sl], s[sl][2 * x], s[sl][2 * x + 1]);
        if constexpr (L::parts > 1) continue;
        if (sl > 0 || 2 * x < seen) ptx::mma(row_sum[sl], left[sl].r[0], ones, ones);
        if (drop) tile::keep_pairs(left[sl], kept.from(sl, 2 * x));
      }
      tile::multiply(acc, left, values + x * 16 * L::Step::pitch,
                     [x](int sl) { return sl > 0 || 2 * x < seen; });
      if constexpr (L::all) {
        if (a.value_table.count > 0)
          to_values.add(acc, left, Base::ring(L::values), at.first - pw - 15 + 16 * x, shear);
      }
    }
  }

  /// Processes the keys of a step from j0 on that the warp's queries see.
  __device__ void step(const AttentionArgs& a, int j0) {
    constexpr int half = L::step > 32 ? L::step / 2 : L::step;
    const bool to_diagonal = L::slabs == 2 && a.mask.causal && j0 + L::step > pw;
    if (L::step > half && end - j0 > half && !to_diagonal) {
      attend<L::step / 8, false>(a, j0);
      return;
    }
#pragma unroll 1
    for (int j = j0; j < min(j0 + L::step, end); j += half)
      if (to_diagonal && j >= pw)
        attend<half / 8, true>(a, j);
      else
        attend<half / 8, false>(a, j);
  }

  __device__ void store(const AttentionArgs& a) {
    finish_strip(a);
    const auto [b, h, kh] = a.place(unit);
#pragma unroll
    for (int sl = 0; sl < L::slabs; ++sl)
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        float sum = row_sum[sl][2 * half];
        if constexpr (L::parts > 1) sum = tile::quad_sum(sum);
        const float factor = sum == 0 ? 0.f : a.dropout.keep_scale / sum;
        const int i = Base::query(sl, half);
        const auto element = [&](int x, int e) { return acc[sl][x][2 * half + e] * factor; };
        put_row<L>(a.results.out, b, h, i, a.sizes.m, element, a.results.rest);
        if (!a.results.sums || lane % 4 != 0 || i >= a.sizes.m) continue;
        const int64_t at = int64_t(unit) * a.sizes.m + i;
        a.results.sums[at] =
            sum == 0 ? INFINITY : row_max[sl][half] + (L::parts == 1 ? log2f(sum) : 0);
        if constexpr (L::parts > 1) a.results.inverse[at] = sum == 0 ? 0 : 1 / sum;
      }
  }
};

/// out and rest [B, H, M, Dv], sums and inverse [B, H, M] from q [B, H, M, D], k [B, G, N, D] and
/// v [B, G, N, Dv]
template <class L>
__global__ void __launch_bounds__(L::threads, L::blocks_per_sm)
    attention_forward(const __grid_constant__ AttentionArgs a) {
  extern __shared__ __align__(256) char smem[];
  ForwardWarp<L> warp(a, smem);
  warp.load(a);
  // The last relative position needed. With a causal mask and two slabs it is 0, or 31 if the
  // diagonal begins within a step of 32 keys. Otherwise all are loaded.
  const int last_relative =
      L::table && L::slabs == 2 && a.mask.causal ? (a.sizes.shift % 32 == 0 ? 0 : 31) : INT_MAX;
  int next;
#pragma unroll 1
  for (int j0 = warp.begin; j0 < warp.last; j0 = next) {
    next = warp.next_step(a, j0);
    const bool follows = !L::extended || next == j0 + L::step;
    if (follows && next < warp.last) {
      copy_step<L>(a, warp.base, warp.unit, next);
      const int relative = next - warp.p0 + 1;
      if (relative <= last_relative) copy_relative<L, L::step>(a, warp.base, warp.unit, relative);
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

AttentionSaved attention(const AttentionOperands& inputs, const Tensor& out, bool for_backward) {
  const int64_t width = widest(inputs);
  const Device device = inputs.q.device();
  const Shape rows{inputs.q.size(0), inputs.q.size(1), inputs.q.size(2)};
  const bool wide = inputs.q.dtype() == f32;
  Tensors kept;
  AttentionArgs a = attention_args(inputs, kept);
  a.results.out = operand_rows<void>(out);
  AttentionSaved saved;
  if (for_backward) {
    Shape sizes = rows;
    if (wide) sizes.insert(0, 2);
    saved.sums = empty(sizes, {.dtype = f32, .device = device});
    a.results.sums = saved.sums.data<float>();
    if (wide) {
      a.results.inverse = a.results.sums + rows.numel();
    } else {
      saved.rest = empty_like(out);
      a.results.rest = operand_rows<void>(saved.rest);
    }
  }
  with_tile<forward_tile>(a, width, [&]<AttentionTile T>() {
    using L = ForwardLayout<T>;
    launch_with_shared(
        "attention", device.index, attention_forward<L>,
        dim3(unsigned(a.sizes.batch * a.sizes.heads), unsigned(ceil_div(a.sizes.m, L::rows))),
        dim3(L::threads), L::bytes, a);
  });
  return saved;
}

}  // namespace stretto::cuda
