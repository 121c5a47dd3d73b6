// Fused attention, backward: gradients of keys and values.
//
// A warp owns 16 or 32 keys of a key head and iterates over the queries that see any of them, 32 at
// a time, head by head (the drawing is in attention_transposed.cuh):
//
//   for each head of the group, for each step of queries:
//     Pᵀ  = 2^(scores − sums)               keys × queries; hidden keys: 0
//     dV += Pᵀ g                            P after dropout
//     dSᵀ = Pᵀ ∘ (V gᵀ + δ)                 V gᵀ is 0 where dropout drops P
//     dK += dSᵀ Q
//
// A warp skips the tiles of queries that see none of its keys. The sums of dSᵀ's rows are the
// gradient of a bias that all queries share. Tested against the composed implementation in f64.
#include "cuda/attention/attention_tiles.cuh"
#include "cuda/attention/attention_transposed.cuh"

namespace stretto::cuda {
namespace {

template <AttentionTile T>
struct KeysLayout : AttentionLayout<T> {
  using Base = AttentionLayout<T>;
  using Base::all, Base::has_p, Base::row, Base::rows, Base::step, Base::table;
  static constexpr int ring = tile::ring_of(rows + 2 * step);
  using Ring = tile::Area<BFloat16, T.head, ring, T.parts>;
  static constexpr bool own_keys = true, joined = table && !has_p && T.parts == 1;

  static constexpr int k = 0, v = k + rows * row, q = v + rows * row, g = q + 2 * step * row;
  static constexpr int p = has_p ? g + 2 * step * row : q, r = (has_p ? p : g) + 2 * step * row;
  static constexpr int values = r + (table ? ring * row : 0);
  static constexpr int stats = values + (all ? ring * row : 0), bias = stats + 4 * step * 4;
  static constexpr int bytes = bias + ring * 4;
};

template <class L>
struct KeysWarp : TransposedWarp<L> {
  using Base = TransposedWarp<L>;
  using Base::as_columns, Base::base, Base::lane, Base::tiles, Base::warp;
  using typename Base::Queries, typename Base::Scores, typename Base::Step, typename Base::Sums;
  const int first_unit, j0;  // j0: the first key of the block
  const int first, end;      // the range of queries that see keys of the block
  VisibleSteps<L::step, L::extended> steps;
  OwnRows<L> k, v;
  Sums dk = {}, dv = {};
  float sum_ds[L::slabs][2];

  __device__ KeysWarp(const AttentionArgs& a, const char* smem)
      : Base(smem),
        first_unit(int(blockIdx.x) * a.sizes.per_group),
        j0(blockIdx.y * L::rows),
        first(max(0, a.first_position(j0) - a.sizes.shift)),
        end(min(a.sizes.m, a.end_position(min(j0 + L::rows, a.sizes.n) - 1) - a.sizes.shift)),
        k(base, L::k),
        v(base, L::v) {}
  /// The first key of the warp, recomputed to save registers.
  __device__ int jw() const { return j0 + tile::opaque(threadIdx.x) / 32 * L::own; }
  /// True if queries of the step see keys of the warp.
  __device__ bool sees(const AttentionArgs& a, int i0) const {
    return i0 + L::step > a.first_position(jw()) - a.sizes.shift;
  }
  __device__ auto seen_by_block(const AttentionArgs& a, int unit) const {
    return [&, this, unit](int i0) { return a.sees<L::extended>(unit, i0, L::step, j0, L::rows); };
  }
  /// The first step of a head of which any query sees keys of the block, and the one after i0.
  __device__ int first_step(const AttentionArgs& a, int unit) {
    return steps.first(first, end, seen_by_block(a, unit));
  }
  __device__ int next_step(const AttentionArgs& a, int unit, int i0) {
    return steps.next(i0, end, seen_by_block(a, unit));
  }
  /// The first relative position of a step's strip.
  __device__ int first_relative(const AttentionArgs& a, int from, int i0) const {
    return from - (i0 + a.sizes.shift) - (L::step - 1);
  }

  __device__ void load_own(const AttentionArgs& a) const {
    copy_keys<L, L::rows>(a, typename L::Own{base}, first_unit, j0);
  }
  /// Loads the first step of a head, or one that does not follow the step before.
  __device__ void load_first(const AttentionArgs& a, int unit, int i0) const {
    if (end > i0) {
      copy_queries<L>(a, base, unit, i0);
      copy_relative<L, L::rows + L::step>(a, base, unit, first_relative(a, j0, i0));
    }
    ptx::commit();
    tile::wait_for_copies();
  }

  __device__ void start_head() {
#pragma unroll
    for (int sl = 0; sl < L::slabs; ++sl) sum_ds[sl][0] = sum_ds[sl][1] = 0;
  }

  /// The product with queries, the relative term with its bias, and the other terms. f32 adds them
  /// in this order; in bf16 the product is last, as mma adds it to the other terms.
  __device__ void scores(const AttentionArgs& a, Scores& s, int unit, const Queries& at) const {
    const auto add_products = [&] {
      tile::multiply_transposed<tile::Steps{.swapped = L::parts > 1}>(s, k, at.q + as_columns);
    };
    const float* const relative_bias = reinterpret_cast<const float*>(Base::shared + L::bias);
    const bool biased = a.relative_bias.width > 0;
    if constexpr (L::parts > 1) add_products();
    if constexpr (L::table) {
      const int relative = first_relative(a, jw(), at.first);
      if (!L::all || a.has_relative())
        Base::add_strip(
            s, Base::ring(L::r), relative, at.p,
            [&](int o) {
              return biased ? relative_bias[(relative + 8 * o + lane / 4) & (L::ring - 1)] : 0.f;
            },
            k, a.table_steps<L>());
    } else if (biased) {
      each_score<true>(s, at.first + a.sizes.shift, jw(), [&](int position, int key, float& x) {
        const float bias = relative_bias[(key - position) & (L::ring - 1)];
        x = L::parts > 1 ? x + bias : bias;
      });
    }
    if constexpr (L::all) {
      const auto [b, h, kh] = a.place(unit);
      a.add_terms<L::parts, true>(s, b, h, at.first, jw());
    }
    if constexpr (!L::joined && L::parts == 1) add_products();
    if constexpr (L::extended) a.cap_scores<L::parts>(s);
  }

  /// Sets weights to 0 where a mask other than padding hides the key. store() applies padding.
  __device__ void hide(const AttentionArgs& a, Scores& s, int unit, const Queries& at,
                       Sight sight) const {
    if constexpr (L::extended) {
      const auto [b, h, kh] = a.place(unit);
      if (sight != Sight::all) a.mask.tensors.hide<true>(s, b, h, at.first, jw(), 0);
    }
    const int p0 = at.first + a.sizes.shift;
    if (jw() + L::own <= p0 + a.mask.ahead && !a.begins_after(jw(), p0 + L::step - 1) &&
        at.first + L::step <= a.sizes.m)
      return;
#pragma unroll
    for (int c = 0; c < L::step / 4; ++c) {
      const int position = p0 + 8 * (c / 2) + 2 * (lane % 4) + c % 2, row = jw() + lane / 4;
      const int low = a.first_key(position) - row;
      const int high = position < a.sizes.n ? a.end_key(position) - row : -(1 << 30);
#pragma unroll
      for (int r = 0; r < 2 * L::slabs; ++r)
        if (8 * r < low || 8 * r >= high) s[r / 2][c / 2][2 * (r % 2) + c % 2] = 0;
    }
  }

  /// dP + δ; without dropout sums begin with δ.
  __device__ void weight_gradients(const AttentionArgs& a, Scores& ds, const Queries& at,
                                   const typename Base::Kept& kept, bool drop) const {
    const float* const deltas = at.stats + L::step;
#pragma unroll
    for (int n = 0; n < tiles; ++n) {
      const float2 delta = drop ? float2{0, 0} : Base::of_tile(deltas, n);
#pragma unroll
      for (int sl = 0; sl < L::slabs; ++sl) {
        ds[sl][n][0] = ds[sl][n][2] = delta.x;
        ds[sl][n][1] = ds[sl][n][3] = delta.y;
      }
    }
    const Step g = at.g;
    if constexpr (L::all) {
      if (a.value_table.count > 0)
        Base::add_strip(
            ds, Base::ring(L::values), first_relative(a, jw(), at.first), g,
            [](int) { return 0.f; }, v);
    }
    tile::multiply_transposed(ds, v, g + as_columns);
    if (!drop) return;
#pragma unroll
    for (int n = 0; n < tiles; ++n) {
      const float2 delta = Base::of_tile(deltas, n);
#pragma unroll
      for (int sl = 0; sl < L::slabs; ++sl)
#pragma unroll
        for (int e = 0; e < 4; ++e)
          ds[sl][n][e] = (kept.has(sl, n, e) ? ds[sl][n][e] * a.dropout.keep_scale : 0) +
                         (e & 1 ? delta.y : delta.x);
    }
  }

  __device__ void step(const AttentionArgs& a, int unit, int i0) {
    const Sight seen = a.sight<L::extended>(unit, i0, L::step, jw(), L::own);
    if (seen == Sight::none) return;
    const Queries at = Base::queries(i0);
    const bool drop = L::config.dropout && a.dropout.below > 0;
    typename Base::Kept kept;
    if (drop) draw_columns<0>(kept, a, unit, i0, jw());
    Scores s = {}, ds;
    scores(a, s, unit, at);
    Base::cap_slopes(a, ds, s);
    Base::weights(a, s, at.stats);
    hide(a, s, unit, at, seen);
    Base::multiply_rows(dv, s, at.g, kept, drop);
    Base::apply_slopes(s, ds);
    weight_gradients(a, ds, at, kept, drop);
#pragma unroll
    for (int sl = 0; sl < L::slabs; ++sl)
#pragma unroll
      for (int n = 0; n < tiles; ++n)
#pragma unroll
        for (int e = 0; e < 4; ++e) ds[sl][n][e] *= s[sl][n][e];
    if constexpr (L::all) Base::add_to_sums(sum_ds, ds);
    Base::multiply_rows(dk, ds, at.q, kept, false);
  }

  /// The gradient of a bias that all queries of a head share.
  __device__ void store_key_sums(const AttentionArgs& a, int unit) const {
#pragma unroll
    for (int sl = 0; sl < L::slabs; ++sl)
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int j = jw() + sl * 16 + lane / 4 + 8 * half;
        const float sum = tile::quad_sum(sum_ds[sl][half]);
        if (a.gradients.key_sums && lane % 4 == 0 && j < a.sizes.n)
          a.gradients.key_sums[int64_t(unit) * a.sizes.n + j] =
              a.hidden_keys(a.place(unit).b)(j) ? 0 : sum;
      }
  }

  /// Stores gradients. Those of keys that padding hides are 0.
  __device__ void store(const AttentionArgs& a, const OperandRows<void>& to, const Sums& d,
                        float factor) const {
    const auto [b, h, kh] = a.place(first_unit);
    const auto hidden = a.hidden_keys(b);
#pragma unroll
    for (int sl = 0; sl < L::slabs; ++sl)
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int j = jw() + sl * 16 + lane / 4 + 8 * half;
        const bool seen = !hidden(j);
        put_row<L>(to, b, kh, j, a.sizes.n,
                   [&](int x, int e) { return seen ? d[sl][x][2 * half + e] * factor : 0; });
      }
  }
};

/// dk [B, G, N, D] and dv [B, G, N, Dv] from q, k, v, g [B, H, M, Dv], sums and delta [B, H, M]
template <class L>
__global__ void __launch_bounds__(L::threads, L::blocks_per_sm)
    attention_keys(const __grid_constant__ AttentionArgs a) {
  extern __shared__ __align__(256) char smem[];
  KeysWarp<L> warp(a, smem);
  warp.load_own(a);
#pragma unroll 1
  for (int unit = warp.first_unit; unit < warp.first_unit + a.sizes.per_group; ++unit) {
    warp.start_head();
    int i0 = warp.first_step(a, unit), next;
    warp.load_first(a, unit, i0);
#pragma unroll 1
    for (; i0 < warp.end; i0 = next) {
      next = warp.next_step(a, unit, i0);
      const bool follows = !L::extended || next == i0 + L::step;
      if (follows && next < warp.end) {
        copy_queries<L>(a, warp.base, unit, next);
        copy_relative<L, L::step>(a, warp.base, unit, warp.first_relative(a, warp.j0, next));
      }
      ptx::commit();
      if (warp.sees(a, i0)) warp.step(a, unit, i0);
      tile::wait_for_copies();  // the next queries have arrived, and these are no longer needed
      if (L::extended && !follows) warp.load_first(a, unit, next);
    }
    if constexpr (L::all) warp.store_key_sums(a, unit);
  }
  warp.store(a, a.gradients.k, warp.dk, a.scale.score);
  warp.store(a, a.gradients.v, warp.dv, a.dropout.keep_scale);
}

}  // namespace

void launch_attention_keys(const AttentionArgs& a, int d, int device) {
  with_tile<keys_tile>(a, d, [&]<AttentionTile T>() {
    using L = KeysLayout<T>;
    launch_with_shared("attention", device, attention_keys<L>,
                       dim3(unsigned(a.sizes.batch * (a.sizes.heads / a.sizes.per_group)),
                            unsigned(ceil_div(a.sizes.n, L::rows))),
                       dim3(L::threads), L::bytes, a);
  });
}

}  // namespace stretto::cuda
