// The phases shared by the attention kernels whose warps own keys (attention_keys.cu) or relative
// positions (attention_relative.cu) and iterate over the queries, L::step at a time.
//
// Scores are computed transposed, so that Pᵀ and dSᵀ are directly the left operands of products
// with rows of queries and of gradients. Terms with another index come as a strip, the product of a
// ring's rows with the queries, which is sheared:
//
//        queries i0 …                     strip
//       ┌────────────┐                  ┌────────────┐  attention_keys: own rows are keys, the
//   own │            │  column c moves  │ ╲          │  ring has relative positions; column c
//  rows │   scores   │ ◄──────────────  │  ╲   band  │  moves up by 7 − c rows
//       │            │  up, by octets   │   ╲        │  attention_relative: own rows are relative
//       └────────────┘                  │    ╲       │  positions, the ring has keys; column c
//                                       └────────────┘  moves up by c rows
#pragma once

#include "cuda/attention/attention_dropout.cuh"

namespace stretto::cuda {

/// Moves column c of transposed tiles, [16 slabs + 16 rows, 8], up by `first` + `step` · c rows,
/// 0 … 7.
struct RowShear {
  int from0, from1;
  bool next0, next1;

  __device__ RowShear(int lane, int first, int step) {
    const int g = lane / 4, t = lane % 4, up0 = first + step * 2 * t, up1 = up0 + step;
    from0 = ((g + up0) & 7) * 4 + t;
    from1 = ((g + up1) & 7) * 4 + t;
    next0 = g < up0;
    next1 = g < up1;
  }
  /// Eight rows (an octet) of the result, from octets j and j + 1 of the strip.
  template <int Tiles>
  __device__ void octet(float& d0, float& d1, const float (&w)[Tiles][4], int j) const {
    const int c0 = 2 * (j & 1), c1 = 2 * ((j + 1) & 1);
    const float(&w0)[4] = w[j / 2], (&w1)[4] = w[(j + 1) / 2];
    d0 = tile::lane_of(next0 ? w1[c1] : w0[c0], from0);
    d1 = tile::lane_of(next1 ? w1[c1 + 1] : w0[c0 + 1], from1);
  }
};

/// A layout L has the members of AttentionLayout, the shared memory areas q, g, p (two steps each)
/// and stats, a Ring, and
///   own_keys  own rows are keys, not relative positions
///   joined    own rows and the ring's rows are multiplied by the same queries, loaded once
template <class L>
struct TransposedWarp {
  using Operand = tile::Fragment<L::parts>;
  using Step = typename L::Step;
  static constexpr int tiles = L::step / 8;
  using Scores = float[L::slabs][tiles][4];
  using Sums = float[L::slabs][L::head / 8][4];
  using Kept = KeptWeights<L::slabs, tiles>;
  const char* const shared;
  const uint32_t base;
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const uint32_t as_rows = L::Step::Rows::as_rows(lane),
                 as_columns = L::Step::Rows::as_columns(lane);
  const RowShear shear;

  __device__ explicit TransposedWarp(const char* smem)
      : shared(smem),
        base(ptx::shared_address(smem)),
        shear(lane, L::own_keys ? 7 : 0, L::own_keys ? -1 : 1) {}

  /// The queries of a step.
  struct Queries {
    int first;
    Step q, g, p;
    const float* stats;  // of the lane's two queries of each tile: sums and, `step` further, deltas
  };
  __device__ Queries queries(int i0) const {
    const Step rows{base + turn<L>(i0) * Step::bytes};
    const float* const stats = reinterpret_cast<const float*>(shared + L::stats);
    return {i0, rows + L::q, rows + L::g, rows + L::p,
            stats + turn<L>(i0) * 2 * L::step + 2 * (lane % 4)};
  }
  __device__ typename L::Ring ring(int area) const { return {base + area}; }
  __device__ static float2 of_tile(const float* stats, int n) {
    return *reinterpret_cast<const float2*>(stats + 8 * n);
  }

  /// Calls use(value, slab, tile, element), tile by tile, for the products of rows `row` … of a
  /// ring with a step's queries, sheared so that 16 · slabs rows of the 16 · slabs + 16 of a tile
  /// remain. Tiles 2 y and 2 y + 1 begin at octet 2 y of the rows or, if the warp owns keys, at
  /// octet tiles − 2 − 2 y. Sums of octet o begin with first(o) or, in f32, end with it. also(x, f)
  /// lets the caller use columns 16 x … of the queries: in f32 two tiles at a time, else all. Only
  /// the first `used` steps of 16 columns are multiplied.
  template <class First, class Also, class Use>
  __device__ void shear_strip(typename L::Ring ring, int row, Step queries, const First& first,
                              const Also& also, const Use& use, int used = L::head / 16) const {
    constexpr int steps = L::head / 16, group = L::parts > 1 ? 2 : tiles,
                  octets = group + 2 * L::slabs, unrolled = L::parts > 1 ? 1 : steps;
    queries = queries + as_columns;
    row += lane % 16;
    const uint32_t chunk = ((lane / 16) ^ L::Ring::Rows::swizzle(row)) << 4;
#pragma unroll
    for (int n0 = 0; n0 < tiles; n0 += group) {
      const int octet0 = L::own_keys ? tiles - n0 - group : n0;
      float w[group][L::slabs + 1][4];
      // Calls f(sums, element of the octet's first column, tile) for the tiles that octet o is in.
      const auto each_tile = [&](int o, const auto& f) {
#pragma unroll
        for (int n = 0; n < group; ++n) {
          const int at = o - (L::own_keys ? group - 2 - n / 2 * 2 : n / 2 * 2);
          if (at >= 0 && at < 2 * L::slabs + 2) f(w[n][at / 2], at % 2 * 2, n);
        }
      };
#pragma unroll
      for (int o = 0; o < octets; ++o) {
        const float x = L::parts == 1 ? first(octet0 + o) : 0;
        each_tile(o, [&](float(&d)[4], int e, int) { d[e] = d[e + 1] = x; });
      }
#pragma unroll unrolled
      for (int x = 0; x < (unrolled == 1 ? used : steps); ++x) {
        if (unrolled > 1 && x >= used) continue;
        Operand f[group / 2];
#pragma unroll
        for (int y = 0; y < group / 2; ++y)
          load(f[y], (queries.address + (n0 / 2 + y) * 16 * Step::pitch) ^ (x << 5), Step::part);
        also(x, f);
#pragma unroll
        for (int o = 0; o < octets; o += 2) {
          Operand left;
          load(left,
               ring.address + ((row + 8 * (octet0 + o)) & (L::ring - 1)) * L::Ring::pitch +
                   (chunk ^ (x << 5)),
               L::Ring::part);
          each_tile(o, [&](float(&d)[4], int, int n) {
            tile::multiply<(L::parts > 1)>(d, left, f[n / 2], n % 2);
          });
        }
      }
      if constexpr (L::parts > 1) {
#pragma unroll
        for (int o = 0; o < octets; ++o) {
          const float x = first(octet0 + o);
          each_tile(o, [&](float(&d)[4], int e, int) { d[e] += x, d[e + 1] += x; });
        }
      }
#pragma unroll
      for (int n = 0; n < group; ++n)
#pragma unroll
        for (int o = 0; o < 2 * L::slabs; ++o) {
          float d0, d1;
          shear.octet(d0, d1, w[n], L::own_keys ? o + 1 - n % 2 : o + n % 2);
          use(d0, o / 2, n0 + n, 2 * (o % 2));
          use(d1, o / 2, n0 + n, 2 * (o % 2) + 1);
        }
    }
  }
  /// s += the product of the ring's rows from `row` on with queries, sheared. If joined, also adds
  /// own rows times these queries. Adds bias(o) to the sums of octet o.
  template <class Bias, class Own>
  __device__ void add_strip(Scores& s, typename L::Ring rows, int row, Step queries,
                            const Bias& bias, const Own& own, int used = L::head / 16) const {
    shear_strip(
        rows, row, queries, bias,
        [&](int x, const auto& f) {
          if constexpr (L::joined) {
#pragma unroll
            for (int sl = 0; sl < L::slabs; ++sl) {
              const Operand left = own(sl, x);
#pragma unroll
              for (int n = 0; n < tiles; ++n) tile::multiply(s[sl][n], left, f[n / 2], n % 2);
            }
          }
        },
        [&](float x, int sl, int n, int e) { s[sl][n][e] += x; }, used);
  }

  /// Converts scores to weights, divided by their sum in bf16.
  __device__ void weights(const AttentionArgs& a, Scores& s, const float* stats) const {
#pragma unroll
    for (int n = 0; n < tiles; ++n) {
      const float2 sum = of_tile(stats, n);
#pragma unroll
      for (int sl = 0; sl < L::slabs; ++sl)
#pragma unroll
        for (int e = 0; e < 4; ++e)
          s[sl][n][e] = weight<L::all>(s[sl][n][e], a.scale.log2e, e & 1 ? sum.y : sum.x,
                                       max_exponent<L::parts, true>);
    }
  }

  /// Sets `slopes` to the derivatives of the soft cap at scores, if there is one.
  __device__ static void cap_slopes(const AttentionArgs& a, Scores& slopes, const Scores& s) {
    if constexpr (L::extended)
      each(slopes, s, [&](float& slope, float x) { slope = a.cap_slope(x); });
  }
  /// Multiplies weights by these derivatives.
  __device__ static void apply_slopes(Scores& s, const Scores& slopes) {
    if constexpr (L::extended) each(s, slopes, [](float& x, float slope) { x *= slope; });
  }
  template <class F>
  __device__ static void each(Scores& x, const Scores& y, const F& f) {
#pragma unroll
    for (int sl = 0; sl < L::slabs; ++sl)
#pragma unroll
      for (int n = 0; n < tiles; ++n)
#pragma unroll
        for (int e = 0; e < 4; ++e) f(x[sl][n][e], y[sl][n][e]);
  }

  /// d += x times the first `steps` steps of 16 columns of rows; if masked, only with the elements of
  /// x that dropout keeps.
  __device__ void multiply_rows(Sums& d, const Scores& x, Step rows, const Kept& kept, bool masked,
                                int steps = L::head / 16) const {
#pragma unroll
    for (int y = 0; y < tiles / 2; ++y) {
      Operand left[L::slabs];
#pragma unroll
      for (int sl = 0; sl < L::slabs; ++sl) {
        tile::pack(left[sl], x[sl][2 * y], x[sl][2 * y + 1]);
        if (masked) tile::keep_pairs(left[sl], kept.from(sl, 2 * y));
      }
      tile::multiply(d, left, rows + as_rows + y * 16 * Step::pitch, tile::Always{}, steps);
    }
  }

  /// Adds the elements of x to the sums of their rows.
  __device__ static void add_to_sums(float (&sums)[L::slabs][2], const Scores& x) {
#pragma unroll
    for (int sl = 0; sl < L::slabs; ++sl)
#pragma unroll
      for (int n = 0; n < tiles; ++n)
#pragma unroll
        for (int e = 0; e < 4; ++e) sums[sl][e >> 1] += x[sl][n][e];
  }
};

}  // namespace stretto::cuda
