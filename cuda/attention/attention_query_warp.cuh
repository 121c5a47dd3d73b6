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

/// Converts strips to scores and back, for 16 queries × 8 keys. A strip has the term of relative
/// position `low` + c in column c. Row g of the scores is its columns from 15 − g on, row g + 8
/// those from 7 − g on, one tile earlier. For g = 5, s are scores:
///
///                    tile 0            tile 1            tile 2
///     row g      |                 |     s s s s s s | s s             |
///     row g + 8  |     s s s s s s | s s             |                 |
///
/// That takes one shuffle per register, as all rows of a quad of lanes move by the same distance.
/// In a strip's tiles, neighboring elements are exchanged in the rows that move by an odd distance.
struct Shear {
  int from0, from1, back0, back1;
  bool odd, wrap0, wrap1, over0, over1;

  __device__ explicit Shear(int lane) {
    const int t = lane % 4, ahead = 7 - lane / 4, pairs = ahead >> 1, quad = lane & ~3;
    odd = ahead & 1;
    from0 = quad | ((t + pairs) & 3);
    from1 = quad | ((t + pairs + odd) & 3);
    wrap0 = t < pairs;
    wrap1 = t < pairs + odd;
    back0 = quad | ((t - pairs - odd) & 3);
    back1 = quad | ((t - pairs) & 3);
    over0 = t + pairs + odd >= 4;
    over1 = t + pairs >= 4;
  }
  __device__ void exchange(float& x, float& y) const {
    const float first = odd ? y : x;
    y = odd ? x : y;
    x = first;
  }
  /// Scores of a tile of keys from three neighboring tiles of the strip; if Add, added to s.
  template <bool Add = false>
  __device__ void scores(float (&s)[4], const float (&w0)[4], const float (&w1)[4],
                         const float (&w2)[4]) const {
    const auto put = [](float& to, float x) { to = Add ? to + x : x; };
    put(s[0], tile::lane_of(wrap0 ? w2[0] : w1[0], from0));
    put(s[1], tile::lane_of(wrap1 ? w2[1] : w1[1], from1));
    put(s[2], tile::lane_of(wrap0 ? w1[2] : w0[2], from0));
    put(s[3], tile::lane_of(wrap1 ? w1[3] : w0[3], from1));
  }
};

/// Converts scores to strips, in bf16; holds what a tile of 16 queries carries to the next ones.
template <int Parts>
struct Back {
  uint32_t upper[Parts] = {};     // rows 0 … 7 of the last tile
  uint32_t pairs[Parts][2] = {};  // those of the tile before, and rows 8 … 15 of the last one

  /// Multiplies the carried elements of rows 0 … 7 or, if half is 1, 8 … 15 by a power of 2.
  __device__ void scale(int half, float by) {
    const auto times = [](uint32_t& pair, float low, float high) {
      pair = ptx::cvt_pack(__uint_as_float(pair << 16) * low,
                           __uint_as_float(pair & 0xffff0000u) * high);
    };
    const float low = half == 0 ? by : 1.f, high = half == 0 ? 1.f : by;
#pragma unroll
    for (int i = 0; i < Parts; ++i) {
      if (half == 0) times(upper[i], by, by);
      times(pairs[i][0], low, high);
      times(pairs[i][1], low, high);
    }
  }

  /// Computes two tiles of the strip from two tiles of scores; the strip's second tile begins where
  /// `next` does. All are left operands. Rows g and g + 8, which move alike, share a register.
  __device__ void strip(tile::Fragment<Parts>& to, const tile::Fragment<Parts>& next,
                        const Shear& shear) {
    const uint32_t first = shear.odd ? 0x7632 : 0x5410, second = shear.odd ? 0x5410 : 0x7632;
#pragma unroll
    for (int i = 0; i < Parts; ++i)
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const uint32_t lower = next.r[i][2 * half + 1];
        const uint32_t z0 = __byte_perm(upper[i], lower, first),
                       z1 = __byte_perm(upper[i], lower, second);
        const uint32_t x = __shfl_sync(~0u, shear.over0 ? pairs[i][0] : z0, shear.back0),
                       y = __shfl_sync(~0u, shear.over1 ? pairs[i][1] : z1, shear.back1);
        to.r[i][2 * half] = __byte_perm(x, y, 0x5410);
        to.r[i][2 * half + 1] = __byte_perm(x, y, 0x7632);
        upper[i] = next.r[i][2 * half];
        pairs[i][0] = z0;
        pairs[i][1] = z1;
      }
  }
};

/// Shears weights or gradients of scores back into the strip, and multiplies it by a table's rows
/// in a ring. Tiles that straddle two steps are carried, as bf16 values. Slab 0 is one step of 16
/// keys behind slab 1, so that both multiply the same rows.
template <class L>
struct StripProduct {
  using Operand = tile::Fragment<L::parts>;
  Back<L::parts> back[L::slabs];
  Operand waiting = {};  // slab 0's strip of the previous 16 keys

  /// d += left · rows `row` … of a ring.
  __device__ static void multiply_ring(float (&d)[L::slabs][L::head / 8][4],
                                       const Operand (&left)[L::slabs], typename L::Ring ring,
                                       int row, int steps) {
    const int lane = threadIdx.x % 32;
    row += lane % 16;
    tile::multiply(d, left,
                   ring + (row & (L::ring - 1)) * L::Ring::pitch +
                       (((lane / 16) ^ L::Ring::Rows::swizzle(row)) << 4),
                   tile::Always{}, steps);
  }
  /// d += the strip of 16 keys, which begins at relative position `relative`, times rows of the
  /// ring, of which only `steps` steps of 16 columns are not zero.
  __device__ void add(float (&d)[L::slabs][L::head / 8][4], const Operand (&of_keys)[L::slabs],
                      typename L::Ring ring, int relative, const Shear& shear,
                      int steps = L::head / 16) {
    Operand strip[L::slabs];
#pragma unroll
    for (int sl = 0; sl < L::slabs; ++sl) back[sl].strip(strip[sl], of_keys[sl], shear);
    if constexpr (L::slabs == 1) {
      multiply_ring(d, strip, ring, relative, steps);
    } else {
      const Operand both[2] = {waiting, strip[1]};
      multiply_ring(d, both, ring, relative - 16, steps);
      waiting = strip[0];
    }
  }
  /// Adds the tiles that are still carried after the last keys. `relative` is the relative position
  /// at which the strip begins.
  __device__ void finish(float (&d)[L::slabs][L::head / 8][4], typename L::Ring ring, int relative,
                         const Shear& shear, int steps = L::head / 16) {
    const Operand none[L::slabs] = {};
#pragma unroll
    for (int sl = 0; sl < L::slabs; ++sl) add(d, none, ring, relative + 16 * sl, shear, steps);
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
  const Shear shear;
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
        as_rows(L::Step::Rows::as_rows(lane)),
        as_columns(L::Step::Rows::as_columns(lane)),
        ring_chunk(((lane / 8 % 2) ^
                    L::Step::Rows::swizzle(begin - pw + 1 + L::Step::Rows::column_row(lane)))
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
    return [&, this](int j) { return a.sees<L::extended>(unit, i0, L::rows, j, L::step); };
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
    copy_step<L>(a, base, unit, j0);
    copy_relative<L, L::rows + L::step>(a, base, unit, j0 - (p0 + L::rows - 1));
  }

  /// Computes Count tiles of the strips of slabs `from` …, for slab s from tile `place` + 2 s on:
  /// the product of left(slab, x), columns 16 x … of the queries' rows, x < used, with rows
  /// `relative` … (relative positions) of the ring at `area`. If `with_bias`, adds their bias: in bf16
  /// sums begin with it, in f32 it is added last, so that products are not truncated at its last bit.
  template <int Count, int Slabs, int Tiles, class Left>
  __device__ void add_to_strip(float (&w)[Slabs][Tiles][4], int place, int from, const Left& left,
                               int area, int relative, int used, bool with_bias) const {
    const auto each_tile = [&](bool adds, const auto& f) {
#pragma unroll
      for (int o = 0; o < Count; ++o) {
        float b0 = 0, b1 = 0;
        if (adds && with_bias) {
          b0 = relative_bias[(relative + 8 * o + 2 * (lane % 4)) & (L::ring - 1)];
          b1 = relative_bias[(relative + 8 * o + 2 * (lane % 4) + 1) & (L::ring - 1)];
        }
#pragma unroll
        for (int sl = 0; sl < Slabs; ++sl)
          if (sl >= from) f(w[sl][place + o + 2 * sl], b0, b1);
      }
    };
    each_tile(L::parts == 1, [](float(&d)[4], float b0, float b1) {
      d[0] = d[2] = b0;
      d[1] = d[3] = b1;
    });
    constexpr bool loop = L::use.p_unrolled == 1;
#pragma unroll(L::use.p_unrolled)
    for (int x = 0; x < (loop ? used : L::head / 16); ++x) {
      if (!loop && x >= used) continue;  // a break would prevent unrolling
      Operand l[Slabs];
#pragma unroll
      for (int sl = 0; sl < Slabs; ++sl)
        if (sl >= from) l[sl] = left(sl, x);
#pragma unroll
      for (int o = 0; o < Count; o += 2) {
        Operand f;
        const int row = (relative + 8 * o + L::Ring::Rows::column_row(lane)) & (L::ring - 1);
        load(f, base + area + row * L::Ring::pitch + (ring_chunk ^ (x << 5)), L::Ring::part);
#pragma unroll
        for (int sl = 0; sl < Slabs; ++sl) {
          if (sl < from) continue;
          multiply(w[sl][place + o + 2 * sl], l[sl], f, 0);
          multiply(w[sl][place + o + 1 + 2 * sl], l[sl], f, 1);
        }
      }
    }
    each_tile(L::parts > 1, [&](float(&d)[4], float b0, float b1) {
      if constexpr (L::parts > 1) {
        d[0] += b0, d[2] += b0;
        d[1] += b1, d[3] += b1;
      }
      shear.exchange(d[0], d[1]);
      shear.exchange(d[2], d[3]);
    });
  }
  /// Computes Count tiles of the relative term's strips.
  template <int Count, class P>
  __device__ void extend_strip(const AttentionArgs& a, const P& p, int relative, int place,
                               int from) {
    add_to_strip<Count>(strip, place, from, p, L::r, relative, a.table_steps<L>(), biased);
  }
  /// Computes the tiles that slabs carry into the step from j0 on.
  template <class P>
  __device__ void start_strip(const AttentionArgs& a, const P& p, int j0) {
    if constexpr (L::table) {
      if (end <= j0 || !has_relative(a)) return;
#pragma unroll
      for (int sl = L::slabs - 1; sl >= 0; --sl)
        extend_strip<2>(a, p, j0 - pw - 15 - 16 * sl, -2 * sl, sl);
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
      if (has_relative(a)) add_relative_term<K, Diagonal>(a, s, at.first, p);
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
  __device__ void add_relative_term(const AttentionArgs& a, float (&s)[L::slabs][K][4], int j0,
                                    const P& p) {
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
      if constexpr (!Diagonal) extend_strip<group>(a, p, j0 - pw + 1 + 8 * n, n + 2, 0);
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
