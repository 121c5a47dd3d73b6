// Fused attention, backward: gradients of the rows of relative positions and of their bias. Names
// call a relative position a relative.
//
// A block owns 64 or 128 relative positions of a head, a warp 16 or 32 of them, and iterates over
// the queries that see a key at such a relative position (the drawing is in
// attention_transposed.cuh):
//
//   for each batch entry of the segment, for each step of queries:
//     Pᵀ  = 2^(scores − sums)   relative positions × queries: a row's key moves with the query
//     dVr += Pᵀ g               of the value table
//     dSᵀ = Pᵀ ∘ (V gᵀ + Vr gᵀ + δ)
//     dR += dSᵀ p;  the gradient of the bias: sums of rows      p: position queries
//
// Keys and values are in rings, as each step needs L::step new ones: their products with the
// queries come as a strip.
//
// The batch, and each entry's queries, are split into enough segments to fill the GPU; a second
// launch adds their parts in order. Tested against the composed implementation in f64.
#include "cuda/attention/attention_tiles.cuh"
#include "cuda/attention/attention_transposed.cuh"

namespace stretto::cuda {
namespace {

template <AttentionTile T>
struct RelativeLayout : AttentionLayout<T> {
  using Base = AttentionLayout<T>;
  using Base::all, Base::has_p, Base::row, Base::rows, Base::step, Base::table;
  static constexpr int ring = tile::ring_of(rows + 2 * step);
  using Ring = tile::Area<BFloat16, T.head, ring, T.parts>;
  static constexpr bool own_keys = false, joined = table && !has_p && T.parts == 1;
  static constexpr int held = table && T.head <= 32 ? T.head / 16 : 0;  // steps of the table's rows

  static constexpr int r = 0, values = r + (table ? rows * row : 0);
  static constexpr int q = values + (all ? rows * row : 0), g = q + 2 * step * row;
  static constexpr int p = has_p ? g + 2 * step * row : q, k = (has_p ? p : g) + 2 * step * row;
  static constexpr int v = k + ring * row, stats = v + ring * row, bias = stats + 4 * step * 4;
  static constexpr int bytes = bias + rows * 4;
};

/// The sums that a warp accumulates.
template <class L>
struct RelativeSums {
  float rows[L::table ? L::slabs : 1][L::head / 8][4] = {}, bias[L::slabs][2] = {};
  float value_rows[L::slabs][L::head / 8][4] = {};
};

template <class L>
struct RelativeWarp : TransposedWarp<L> {
  using Base = TransposedWarp<L>;
  using Base::as_columns, Base::base, Base::lane, Base::tiles, Base::warp;
  using typename Base::Queries, typename Base::Scores, typename Base::Step, typename Base::Sums;
  const int h, segment;
  const int lag0, lw;    // the first relative position of the block and of the warp
  const int first, end;  // the range of queries that see a key at the block's relative positions
  OwnRows<L, L::held> rows;
  OwnRows<L> value_rows;
  VisibleSteps<1, L::extended> steps;

  __device__ RelativeWarp(const AttentionArgs& a, const char* smem)
      : Base(smem),
        h(blockIdx.x % a.sizes.heads),
        segment(blockIdx.x / a.sizes.heads),
        lag0(a.grid.high_relative + 1 - int(blockIdx.y + 1) * L::rows),
        lw(lag0 + warp * L::own),
        first(max(0, -(lag0 + L::rows - 1) - a.sizes.shift)),
        end(min(a.sizes.m, a.sizes.n - lag0 - a.sizes.shift)),
        rows(base, L::r),
        value_rows(base, L::values) {}

  __device__ void load_own(const AttentionArgs& a) {
    const auto load = [&](int area, const AttentionArgs::Table& table) {
      tile::copy_rows<L::threads, L::rows>(typename L::Own{base + area}, table.rows.source(0, h),
                                           lag0 + table.zero_row, table.count);
    };
    if constexpr (L::table) load(L::r, a.table);
    if constexpr (L::all) load(L::values, a.value_table);
    if (a.relative_bias.width > 0)
      tile::copy_line<L::threads, L::rows, L::Own::count>(base + L::bias, a.relative_bias.of(h),
                                                          lag0 - a.relative_bias.first,
                                                          a.relative_bias.width);
    ptx::commit();
    tile::wait_for_copies();
    rows.hold();
  }
  /// True for a step from query `begin` on that sees keys at the block's relative positions.
  __device__ auto seen_by_block(const AttentionArgs& a, int unit, int begin) const {
    return [&, this, unit, begin](int step) {
      const int i0 = begin + step * L::step;
      return a.sees<L::extended>(unit, i0, L::step, lag0 + i0 + a.sizes.shift,
                                 L::rows + L::step - 1);
    };
  }
  /// Loads the first step of queries, or one that does not follow the step before.
  __device__ void load_first(const AttentionArgs& a, int unit, int i0, bool exists) const {
    if (exists) {
      copy_queries<L>(a, base, unit, i0);
      copy_to_rings<L::rows + L::step>(a, unit, lag0 + a.sizes.shift + i0);
    }
    ptx::commit();
    tile::wait_for_copies();
  }
  /// Begins to copy Count keys and values from j on into their rings.
  template <int Count>
  __device__ void copy_to_rings(const AttentionArgs& a, int unit, int j) const {
    copy_keys<L, Count>(a, Base::ring(0), unit, j, j & (L::ring - 1));
  }
  __device__ bool has_rows(const AttentionArgs& a) const {
    return L::table && (!L::all || a.table.count > 0);
  }
  __device__ bool has_value_rows(const AttentionArgs& a) const {
    return L::all && a.value_table.count > 0;
  }

  /// The relative term, its bias, the product of queries with keys, and the other terms. f32 adds
  /// them in forward's order.
  __device__ void scores(const AttentionArgs& a, Scores& s, int unit, const Queries& at,
                         int key) const {
    if constexpr (L::parts > 1) {
      add_row_products(a, s, at);
      add_bias(a, s);
    }
    Base::add_strip(
        s, Base::ring(L::k), key, at.q, [](int) { return 0.f; }, rows);
    if constexpr (L::parts == 1) add_row_products(a, s, at);
    if constexpr (L::all) a.add_terms<L::parts, true, 1>(s, a.place(unit).b, h, at.first, key);
    if constexpr (L::parts == 1) add_bias(a, s);
    if constexpr (L::extended) a.cap_scores<L::parts>(s);
  }
  /// Adds the table's rows times position queries, unless the strip includes them (L::joined).
  __device__ void add_row_products(const AttentionArgs& a, Scores& s, const Queries& at) const {
    if constexpr (L::table && !L::joined) {
      if (has_rows(a))
        tile::multiply_transposed<tile::Steps{.unrolled = L::parts > 1 && L::held == 0 ? 1 : 16,
                                              .swapped = L::parts > 1}>(
            s, rows, at.p + as_columns, tile::Always{}, a.table_steps<L>());
    }
  }
  __device__ void add_bias(const AttentionArgs& a, Scores& s) const {
    if (a.relative_bias.width == 0) return;
    const float* const bias =
        reinterpret_cast<const float*>(Base::shared + L::bias) + (lw - lag0 + lane / 4);
#pragma unroll
    for (int sl = 0; sl < L::slabs; ++sl)
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const float x = bias[16 * sl + 8 * half];
#pragma unroll
        for (int n = 0; n < tiles; ++n) {
          s[sl][n][2 * half] += x;
          s[sl][n][2 * half + 1] += x;
        }
      }
  }

  /// Zeroes the weights of keys that a query does not see. key: that of row 0 and the first query.
  __device__ void hide(const AttentionArgs& a, Scores& s, int unit, const Queries& at, int key,
                       Sight sight) const {
    if constexpr (L::extended) {
      const auto [b, head, kh] = a.place(unit);
      if (sight != Sight::all) a.mask.tensors.hide<true, 1>(s, b, head, at.first, key, 0);
    }
    if (key >= 0 && key + L::own + L::step - 1 <= a.sizes.n && at.first + L::step <= a.sizes.m &&
        !a.mask.block && !a.mask.padding)
      return;
    const auto hidden = a.hidden_keys(a.place(unit).b);
#pragma unroll
    for (int c = 0; c < L::step / 4; ++c) {
      const int column = 8 * (c / 2) + 2 * (lane % 4) + c % 2;
      const int from = a.mask.block ? a.first_key(at.first + column + a.sizes.shift) : 0;
      const bool in_range = at.first + column < a.sizes.m;
#pragma unroll
      for (int r = 0; r < 2 * L::slabs; ++r) {
        const int j = key + lane / 4 + 8 * r + column;
        if (!in_range || j < from || hidden(j)) s[r / 2][c / 2][2 * (r % 2) + c % 2] = 0;
      }
    }
  }

  /// Converts weights to the scores' gradients.
  __device__ void score_gradients(const AttentionArgs& a, Scores& s, const Queries& at, int key,
                                  const typename Base::Kept& kept, const Scores& of_values) const {
    const float* const deltas = at.stats + L::step;
    float2 delta;  // of a tile's two queries
    Base::shear_strip(
        Base::ring(L::v), key, at.g, [](int) { return 0.f; }, [](int, const auto&) {},
        [&](float x, int sl, int n, int e) {
          if (sl == 0 && e == 0) delta = Base::of_tile(deltas, n);
          if constexpr (L::all) x += of_values[sl][n][e];
          if constexpr (L::config.dropout) x = kept.has(sl, n, e) ? x * a.dropout.keep_scale : 0;
          s[sl][n][e] *= x + (e % 2 ? delta.y : delta.x);
        });
  }

  __device__ void step(const AttentionArgs& a, RelativeSums<L>& sums, int unit, int i0) const {
    const int key = lw + i0 + a.sizes.shift;  // that of row 0 and the first query
    if (key + L::own + L::step - 2 < 0 || key >= a.sizes.n) return;
    const Sight seen = a.sight<L::extended>(unit, i0, L::step, key, L::own + L::step - 1);
    if (L::extended && seen == Sight::none) return;
    const Queries at = Base::queries(i0);
    Scores s = {}, slopes;
    scores(a, s, unit, at, key);
    Base::cap_slopes(a, slopes, s);
    Base::weights(a, s, at.stats);
    hide(a, s, unit, at, key, seen);
    typename Base::Kept kept;
    if constexpr (L::config.dropout) {
      if (L::all && a.dropout.below == 0) {
#pragma unroll
        for (int sl = 0; sl < L::slabs; ++sl) kept.add(sl, ~0u >> (32 - kept.bits));
      } else {
        draw_columns<1>(kept, a, unit, i0, key);
      }
    }
    Scores of_values = {};  // the value table's term of the weights' gradients
    if constexpr (L::all) {
      if (has_value_rows(a)) {
        const Step g = at.g;
        Base::multiply_rows(sums.value_rows, s, g, kept, L::config.dropout);
        tile::multiply_transposed(of_values, value_rows, g + as_columns);
      }
    }
    Base::apply_slopes(s, slopes);
    score_gradients(a, s, at, key, kept, of_values);
    Base::add_to_sums(sums.bias, s);
    if constexpr (L::table) {
      if (has_rows(a)) Base::multiply_rows(sums.rows, s, at.p, kept, false, a.table_steps<L>());
    }
  }

  __device__ void store(const AttentionArgs& a, const RelativeSums<L>& sums) const {
    const int64_t part = int64_t(segment) * a.sizes.heads + h;
#pragma unroll
    for (int sl = 0; sl < L::slabs; ++sl)
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int relative = lw + sl * 16 + 8 * half + lane / 4,
                  at = relative - a.relative_bias.first;
        const float sum = tile::quad_sum(sums.bias[sl][half]);
        if (lane % 4 == 0 && a.gradients.relative_bias && at >= 0 && at < a.relative_bias.width)
          a.gradients.relative_bias[part * a.relative_bias.width + at] = sum;
        const auto put = [&](float* to, const AttentionArgs::Table& table,
                             const float(&x)[L::head / 8][4], float factor) {
          const int row = relative + table.zero_row, count = table.count,
                    chunks = table.rows.chunks;
          if (!to || row < 0 || row >= count) return;
#pragma unroll
          for (int c = 0; c < L::head / 8; ++c)
            if (c < chunks)
              *reinterpret_cast<float2*>(to + (part * count + row) * (8 * chunks) + c * 8 +
                                         2 * (lane % 4)) = {x[c][2 * half] * factor,
                                                            x[c][2 * half + 1] * factor};
        };
        if constexpr (L::table) put(a.gradients.table, a.table, sums.rows[sl], a.scale.score);
        if constexpr (L::all)
          put(a.gradients.value_table, a.value_table, sums.value_rows[sl], a.dropout.keep_scale);
      }
  }
};

/// dtable and dvalues [segments, H, R, D] and dbias [segments, H, W] from q, k, v, g, sums and
/// delta [B, H, M]
template <class L>
__global__ void __launch_bounds__(L::threads, L::blocks_per_sm)
    attention_relative(const __grid_constant__ AttentionArgs a) {
  extern __shared__ __align__(256) char smem[];
  RelativeWarp<L> warp(a, smem);
  warp.load_own(a);
  RelativeSums<L> sums;
  const int steps = warp.end > warp.first ? (warp.end - warp.first + L::step - 1) / L::step : 0;
  const int parts = a.sizes.batch * a.grid.pieces;
  const int end_part = parts * (warp.segment + 1) / a.grid.segments;
#pragma unroll 1
  for (int part = parts * warp.segment / a.grid.segments; part < end_part; ++part) {
    const int piece = part % a.grid.pieces, unit = part / a.grid.pieces * a.sizes.heads + warp.h;
    const int begin = warp.first + steps * piece / a.grid.pieces * L::step,
              end = warp.first + steps * (piece + 1) / a.grid.pieces * L::step;
    const int relative = warp.lag0 + a.sizes.shift;  // query 0's key at the block's first relative
    // Counting steps needs fewer registers than counting queries.
    const auto count = [&] { return (end - begin) / L::step; };
    const auto seen = warp.seen_by_block(a, unit, begin);
    int step = warp.steps.first(0, count(), seen);
    warp.load_first(a, unit, begin + step * L::step, step < count());
#pragma unroll 1
    for (int next; step < count(); step = L::extended ? next : step + 1) {
      const int i0 = begin + step * L::step;
      if constexpr (L::extended) next = warp.steps.next(step, count(), seen);
      const bool follows = !L::extended || next == step + 1;
      if (follows && i0 + L::step < end) {
        copy_queries<L>(a, warp.base, unit, i0 + L::step);
        warp.template copy_to_rings<L::step>(a, unit, relative + i0 + L::step + L::rows);
      }
      ptx::commit();
      warp.step(a, sums, unit, i0);
      tile::wait_for_copies();  // the next queries have arrived, and these are no longer needed
      if (L::extended && !follows) warp.load_first(a, unit, begin + next * L::step, next < count());
    }
  }
  warp.store(a, sums);
}

}  // namespace

void launch_attention_relative(const AttentionArgs& a, int d, int device) {
  with_tile<relative_tile>(a, d, [&]<AttentionTile T>() {
    using L = RelativeLayout<T>;
    launch_with_shared(
        "attention", device, attention_relative<L>,
        dim3(unsigned(a.sizes.heads * a.grid.segments),
             unsigned(ceil_div(a.grid.high_relative + 1 - a.grid.low_relative, L::rows))),
        dim3(L::threads), L::bytes, a);
  });
}

}  // namespace stretto::cuda
