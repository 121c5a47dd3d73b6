// The phases of the attention kernels whose warps own queries: forward (attention.cu) and the
// gradients of queries (attention_queries.cu).
//
// A block owns L::rows queries, a warp 16 or 32 of them, and iterates over the keys that any of its
// queries sees, L::step at a time. Terms of relative positions come as a strip, the product of the
// queries with the table's rows for step + 16 relative positions:
//
//        keys j0 …                    strip: relative positions j0 − pw − 15 …
//      ┌────────┐                   ┌──┬────────┐
//   pw │ scores │     shear         │╲ ╲        │   query g of each eight (an octet) needs the
//   …  │        │  ◄───────────     │ ╲ ╲  band │   strip's columns from 7 − g on. Shuffles among
//  +15 │        │                   │  ╲ ╲      │   the four lanes that hold its row move them.
//      └────────┘                   └──┴────────┘
//                                    carried: the last 16 columns are the first of the next step
//
// The table's rows are in a ring buffer in shared memory, because each step needs L::step new ones.
// Slab s of 16 queries carries 2 + 2 s tiles of 8 columns, so that all slabs use the same new
// relative positions.
//
//   load q, p; load the first keys, values and relative positions
//   for each step:  begin to load the next one;  scores → hide → (each kernel's own phases)
#pragma once

#include "cuda/attention/attention_dropout.cuh"

namespace stretto::cuda {

/// How a kernel uses its registers. Arguments are passed to each phase instead of being members of
/// the warp: the compiler then knows that no store changes them, and does not reload them.
struct RegisterUse {
  /// If true, position queries are in registers, and the strip grows by two tiles at a time.
  /// Otherwise it grows by all tiles of a step, so that each operand is loaded once.
  bool p_held;
  /// The number of steps of 16 columns that are unrolled in products with q, p and gradients. Where
  /// operands are loaded and registers are scarce, products are loops.
  int q_unrolled, p_unrolled, g_unrolled = 0;
  /// In bf16 without a table, the product with keys is accumulated onto the bias.
  bool bias_first = false;
};

/// Shears weights or gradients of scores back into the strip, and multiplies it by a table's rows
/// in a ring. Tiles that straddle two steps are carried, as bf16 values. Slab 0 is one step of 16
/// keys behind slab 1, so that both multiply the same rows.
template <class L>
struct StripProduct {
  using Operand = tile::Fragment<L::parts>;
  tile::Back<L::parts> back[L::slabs];
  Operand waiting = {};  // slab 0's strip of the previous 16 keys

  /// d += the strip of 16 keys, which begins at relative position `relative`, times rows of the
  /// ring.
  __device__ void add(float (&d)[L::slabs][L::head / 8][4], const Operand (&of_keys)[L::slabs],
                      typename L::Ring ring, int relative, const tile::Shear& shear) {
    Operand strip[L::slabs];
#pragma unroll
    for (int sl = 0; sl < L::slabs; ++sl) back[sl].strip(strip[sl], of_keys[sl], shear);
    if constexpr (L::slabs == 1) {
      tile::multiply_ring(d, strip, ring, relative);
    } else {
      const Operand both[2] = {waiting, strip[1]};
      tile::multiply_ring(d, both, ring, relative - 16);
      waiting = strip[0];
    }
  }
  /// Adds the tiles that are still carried after the last keys. `relative` is the relative position
  /// at which the strip begins.
  __device__ void finish(float (&d)[L::slabs][L::head / 8][4], typename L::Ring ring, int relative,
                         const tile::Shear& shear) {
    const Operand none[L::slabs] = {};
#pragma unroll
    for (int sl = 0; sl < L::slabs; ++sl) add(d, none, ring, relative + 16 * sl, shear);
  }
};

/// A layout L has the members of AttentionLayout, the shared memory areas q, p, k, v, r, values and
/// bias, a Ring of relative positions, and its RegisterUse `use`.
template <class L>
struct QueryWarp {
  using Operand = tile::Fragment<L::parts>;
  static constexpr int tiles = L::step / 8;
  const uint32_t base;               // of shared memory
  const float* const relative_bias;  // a ring
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, unit;
  const int i0, p0, iw, pw;  // the first query of the block and of the warp; their positions
  VisibleSteps<L::step, L::extended> steps;
  const int last, end;      // the end of the keys for the block and for the warp
  const int begin;          // the first key
  int carried_out_of = -1;  // if masks are tensors: the last step, unless nothing is carried
  const bool biased;
  const tile::Shear shear;
  const uint32_t as_rows, as_columns, ring_chunk;  // the lane's offsets
  float strip[L::table ? L::slabs : 1][L::table ? tiles + 2 * L::slabs : 1][4];

  __device__ QueryWarp(const AttentionArgs& a, const char* shared, int unit_of_block)
      : base(ptx::shared_address(shared)),
        relative_bias(reinterpret_cast<const float*>(shared + L::bias)),
        unit(unit_of_block),
        i0(int(gridDim.y - 1 - blockIdx.y) * L::rows),
        p0(i0 + a.sizes.shift),
        iw(i0 + L::own * warp),
        pw(iw + a.sizes.shift),
        last(a.end_of(i0, L::rows)),
        end(a.end_of(iw, L::own)),
        begin(steps.first(a.first_key(p0) / L::step * L::step, last, seen_by_block(a))),
        biased(a.relative_bias.width > 0),
        shear(lane),
        as_rows(tile::Rows<L::head>::as_rows(lane)),
        as_columns(tile::Rows<L::head>::as_columns(lane)),
        ring_chunk(((lane / 8 % 2) ^ tile::Rows<L::head>::swizzle(
                                         begin - pw + 1 + tile::Rows<L::head>::column_row(lane)))
                   << 4) {}

  /// True if scores have a relative term or its bias, in a kernel that is compiled for a table.
  __device__ bool has_relative(const AttentionArgs& a) const { return !L::all || a.has_relative(); }
  __device__ bool drops(const AttentionArgs& a) const {
    return L::config.dropout && a.dropout.below > 0;
  }
  __device__ typename L::Ring ring(int area) const { return {base + area}; }
  /// Keys from `first` on, and their values.
  struct Keys {
    int first;
    typename L::Step k, v;
  };
  __device__ Keys keys(int j) const {
    const typename L::Step rows{base + turn<L>(j) * L::Step::bytes +
                                uint32_t(j) % L::step * L::Step::pitch};
    return {j, rows + L::k, rows + L::v};
  }
  /// True for a step of which the block sees a key, if masks are tensors.
  __device__ auto seen_by_block(const AttentionArgs& a) const {
    return [&, this](int j) {
      const auto [b, h, kh] = a.place(unit);
      return a.mask.tensors.sight(b, h, i0, L::rows, j, L::step) != Sight::none;
    };
  }
  /// The step after j0 of which the block sees a key, or `last` or more.
  __device__ int next_step(const AttentionArgs& a, int j0) {
    return steps.next(j0, last, seen_by_block(a));
  }
  /// The query of a lane's row.
  __device__ int query(int sl, int half) const { return iw + 16 * sl + lane / 4 + 8 * half; }

  /// Begins to copy keys, values and all relative positions of a step: the first, or one that does
  /// not follow the step before.
  __device__ void load_first(const AttentionArgs& a, int j0) const {
    if (last <= j0) return;
    load_keys<L>(a, base, unit, j0);
    load_relative<L, L::rows + L::step>(a, base, unit, j0 - (p0 + L::rows - 1));
  }

  /// Computes Count tiles of the strips of slabs `from`, `from` + 1, …, which begin at relative
  /// position `relative`. Slab s stores them from tile `place` + 2 s on.
  template <int Count, class P>
  __device__ void extend_strip(const P& p, int relative, int place, int from) {
    tile::add_to_strip<Count, L::use.p_unrolled>(strip, place, from, p, ring(L::r), ring_chunk,
                                                 relative, relative_bias, biased, shear);
  }
  /// Computes the tiles that slabs carry into the step from j0 on.
  template <class P>
  __device__ void start_strip(const AttentionArgs& a, const P& p, int j0) {
    if constexpr (L::table) {
      if (end <= j0 || !has_relative(a)) return;
#pragma unroll
      for (int sl = L::slabs - 1; sl >= 0; --sl)
        extend_strip<2>(p, j0 - pw - 15 - 16 * sl, -2 * sl, sl);
    }
  }
  /// True if a StripProduct carries tiles.
  __device__ bool carries() const { return L::extended ? carried_out_of >= 0 : end > begin; }
  /// The relative position at which these tiles begin.
  __device__ int carried_relative() const {
    const int key =
        L::extended ? carried_out_of + L::step : (end + L::step - 1) / L::step * L::step;
    return key - pw - 15;
  }

  /// Scores of 8 · K keys: the product with keys, the relative term with its bias, and the other
  /// terms. f32 adds them in this order; in bf16 the product is last, as mma adds it to the other
  /// terms. Diagonal: attention is causal, and the warp's first query is at the first key or before
  /// it, so that slab 0 of two sees only the first half of the keys.
  template <int K, bool Diagonal = false, class Q, class P>
  __device__ void scores(const AttentionArgs& a, float (&s)[L::slabs][K][4], const Keys& at,
                         const Q& q, const P& p) {
    const auto add_products = [&] {
      constexpr int seen = Diagonal && L::slabs == 2 ? K / 2 : K;  // tiles that slab 0 sees
      tile::multiply_transposed<tile::Steps{.unrolled = L::use.q_unrolled}>(
          s, q, at.k + as_columns, [](int sl, int n) { return sl > 0 || n < seen; });
    };
    constexpr bool bias_first = L::parts == 1 && L::use.bias_first;
    if constexpr (L::parts > 1) add_products();
    if constexpr (L::table) {
      if (has_relative(a)) add_relative_term<K, Diagonal>(s, at.first, p);
    } else if constexpr (bias_first) {
      if (biased) add_lag_bias<true>(s, at.first);
    }
    if constexpr (L::all) {
      const auto [b, h, kh] = a.place(unit);
      a.add_terms<L::parts, false>(s, b, h, iw, at.first);
    }
    if constexpr (L::parts == 1) add_products();
    if constexpr (!L::table && !bias_first) {
      if (biased) add_lag_bias<false>(s, at.first);
    }
    if constexpr (L::extended) a.cap_scores<L::parts>(s);
  }

  /// Adds the strip's new tiles, sheared; its last tiles become the first ones of the next step.
  template <int K, bool Diagonal, class P>
  __device__ void add_relative_term(float (&s)[L::slabs][K][4], int j0, const P& p) {
    constexpr int group = L::use.p_held ? 2 : K;  // tiles that share an operand
    constexpr int seen = Diagonal && L::slabs == 2 ? K / 2 : K;
    const float none[4] = {};
    // The last step of causal attention needs no new relative positions: the carried ones reach
    // relative position 0.
    const auto tile_of = [&](int sl, int o) -> const float(&)[4] {
      return Diagonal && o >= 2 + 2 * sl ? none : std::as_const(strip[sl][o]);
    };
#pragma unroll
    for (int n = 0; n < K; n += group) {
      if constexpr (!Diagonal) extend_strip<group>(p, j0 - pw + 1 + 8 * n, n + 2, 0);
#pragma unroll
      for (int sl = 0; sl < L::slabs; ++sl)
#pragma unroll
        for (int o = n; o < n + group && o < (sl == 0 ? seen : K); ++o)
          shear.template scores<(L::parts > 1)>(s[sl][o], tile_of(sl, o), tile_of(sl, o + 1),
                                                tile_of(sl, o + 2));
    }
    if constexpr (!Diagonal) {
#pragma unroll
      for (int sl = 0; sl < L::slabs; ++sl)
#pragma unroll
        for (int c = 0; c < 2 + 2 * sl; ++c)
#pragma unroll
          for (int e = 0; e < 4; ++e) strip[sl][c][e] = strip[sl][K + c][e];
    }
  }

  /// Adds the bias of relative positions if there is no table; Set: scores are zero before.
  template <bool Set, int K>
  __device__ void add_lag_bias(float (&s)[L::slabs][K][4], int j0) const {
    const int first = j0 - pw + 2 * (lane % 4) - lane / 4;
#pragma unroll
    for (int sl = 0; sl < L::slabs; ++sl)
#pragma unroll
      for (int n = 0; n < K; ++n)
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          const int relative = first - 16 * sl + 8 * n + (e & 1) - 8 * (e >> 1);
          const float x = relative_bias[relative & (L::ring - 1)];
          s[sl][n][e] = Set ? x : s[sl][n][e] + x;
        }
  }

  /// Sets the scores or weights of the keys that a query does not see to `hidden`.
  template <int K>
  __device__ void hide(const AttentionArgs& a, float (&s)[L::slabs][K][4], int j0, float hidden,
                       Sight sight, bool diagonal = false) const {
    if (diagonal || j0 + 8 * K > pw + a.mask.ahead || j0 + 8 * K > a.sizes.n ||
        a.begins_after(j0, pw + L::own - 1) || a.mask.padding)
      a.hide_keys<K>(s, a.place(unit).b, j0, pw, hidden);
    if constexpr (L::extended) {
      if (sight == Sight::all) return;
      const auto [b, h, kh] = a.place(unit);
      a.mask.tensors.hide<false>(s, b, h, iw, j0, hidden);
    }
  }
};

}  // namespace stretto::cuda
