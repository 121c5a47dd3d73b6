// Fused attention, backward: gradients of queries and of position queries.
//
// A warp owns 16 or 32 queries and walks the keys that any of its block sees in tiles, as forward
// does: dQ = scale · dS K. For the position queries the scores' gradients go back into the strip,
// [16 queries, lags], and meet the rows of the table there. Tiles of the strip that straddle two
// steps belong to the same queries, so they are carried on either way; of two slabs of queries the
// first waits a step, so that both meet the same lags. A warp leaves out what none of its queries
// sees at the end.
//
// The scores' gradients are those of a dense bias: they are added to it where they stand. Entries
// and heads that share one take turns, a launch each.
// Tested against the composed form in f64.
#include "cuda/attention/attention.cuh"

namespace stretto::cuda {
namespace {

using tile::Rows;

template <int D, int Parts, int BK, int Slabs, int Warps, Positions Of>
struct QueriesShape : AttentionShape<D, Parts, Warps, Of> {
  using Base = AttentionShape<D, Parts, Warps, Of>;
  using Base::Apart, Base::Every, Base::Table, Base::row;
  static constexpr int BQ = 16 * Slabs * Warps, ring = tile::ring_of(BQ + 2 * BK);
  static constexpr int tile = BK * row;
  static constexpr int q = 0, g = q + BQ * row, p = Apart ? g + BQ * row : q;
  static constexpr int k = (Apart ? p : g) + BQ * row, v = k + 2 * tile, r = v + 2 * tile;
  static constexpr int values = r + (Table ? ring * row : 0);
  static constexpr int bias = values + (Every ? ring * row : 0), stats = bias + ring * 4;
  static constexpr int delta = stats + (Table && Slabs > 1 ? BQ * 4 : 0), bytes = delta + BQ * 4;
};

/// dq and dp [B, H, M, D] and delta [B, H, M] from q, k, v, g and out [B, H, M, Dv] and sums [B, H,
/// M]. Of its rows of q and g a warp keeps 16 · Q (none or all) and 16 · G columns in registers.
template <int D, int Parts, int BK, int Slabs, int Warps, int Q, int G, bool Drop, Positions Of>
__global__ void __launch_bounds__(Warps * 32, Parts == 1 ? 8 / Warps : 1)
    attention_queries(const __grid_constant__ AttentionArgs a) {
  using S = QueriesShape<D, Parts, BK, Slabs, Warps, Of>;
  constexpr bool Table = S::Table, Apart = S::Apart, Every = S::Every;
  constexpr int Threads = Warps * 32, P = 2 * D, N = BK / 8;
  constexpr bool far = Table && Slabs > 1;             // too many registers
  constexpr int unrolled = far && Apart ? 1 : D / 16;  // where they are loaded, products are loops
  constexpr bool keep_q = Q > 0, keep_p = G == D / 16 && Apart;
  using Operand = tile::Fragment<Parts>;
  extern __shared__ __align__(256) char smem[];
  const uint32_t base = ptx::shared_address(smem);
  const bool biased = a.lag_bias.width > 0, drop = Drop && a.dropout.below > 0;
  const float* const sbias = reinterpret_cast<const float*>(smem + S::bias);
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, gr = lane / 4, t = lane % 4;
  const int unit = Every ? a.grid.first_unit + int(blockIdx.x) * a.grid.unit_step : int(blockIdx.x);
  const int i0 = int(gridDim.y - 1 - blockIdx.y) * S::BQ, p0 = i0 + a.sizes.shift;
  const int iw = i0 + 16 * Slabs * warp, pw = iw + a.sizes.shift;
  const int begin = a.first_key(p0) / BK * BK;
  const int last = a.end_of(i0, S::BQ), end = a.end_of(iw, 16 * Slabs);  // of the block, the warp
  const auto line = [&] { return int64_t(unit) * a.sizes.m; };           // of sums; not kept

  {
    const auto [b, h, kh] = a.place(unit);
    tile::load_rows<D, Threads, S::BQ, Parts>(base + S::q, a.operands.q.source(b, h), i0,
                                              a.sizes.m);
    tile::load_rows<D, Threads, S::BQ, Parts>(base + S::g, a.operands.g.source(b, h), i0,
                                              a.sizes.m);
    if constexpr (Apart)
      tile::load_rows<D, Threads, S::BQ, Parts>(base + S::p, a.operands.p.source(b, h), i0,
                                                a.sizes.m);
  }
  if (last > begin) {
    load_keys<S, BK>(a, base, unit, begin);
    load_lags<S, S::BQ + BK>(a, base, unit, begin - (p0 + S::BQ - 1), biased);
    if constexpr (far)
      tile::load_line<Threads, S::BQ>(base + S::stats, a.results.sums + line(), i0, a.sizes.m);
  }
  ptx::commit();
  float* const deltas = reinterpret_cast<float*>(smem + S::delta) + warp * 16 * Slabs;
  make_delta<D, Parts, 16 * Slabs>(a, unit, iw, deltas);
  ptx::wait<0>();
  __syncthreads();

  const uint32_t sixteen = Rows<D>::sixteen(lane), turned = Rows<D>::turned(lane);
  const uint32_t own = base + warp * Slabs * 16 * P + sixteen;
  // Columns 16 x … of a slab's rows.
  auto rows = [&](int area, int sl, int x) {
    Operand f;
    tile::load(f, (own + area + sl * 16 * P) ^ (x << 5), S::BQ * P);
    return f;
  };
  Operand fq[keep_q ? Slabs : 1][D / 16], fp[keep_p ? Slabs : 1][D / 16],
      fg[G > 0 ? Slabs : 1][D / 16];
#pragma unroll
  for (int sl = 0; sl < Slabs; ++sl)
#pragma unroll
    for (int x = 0; x < D / 16; ++x) {
      if constexpr (keep_q) fq[sl][x] = rows(S::q, sl, x);
      if (x < G) fg[sl][x] = rows(S::g, sl, x);
      if constexpr (keep_p) fp[sl][x] = rows(S::p, sl, x);
    }
  auto of_q = [&](int sl, int x) {
    if constexpr (keep_q)
      return fq[sl][x];
    else
      return rows(S::q, sl, x);
  };
  auto of_g = [&](int sl, int x) { return rows(S::g, sl, x); };
  auto of_p = [&](int sl, int x) {
    if constexpr (keep_p)
      return fp[sl][x];
    else if constexpr (keep_q && !Apart)
      return fq[sl][x];
    else
      return rows(S::p, sl, x);
  };
  float dq[Slabs][D / 8][4] = {}, dp[Apart ? Slabs : 1][D / 8][4] = {};
  float near[2][far ? 1 : Slabs][2];  // sums and deltas
  if constexpr (!far) {
#pragma unroll
    for (int sl = 0; sl < Slabs; ++sl)
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int i = iw + 16 * sl + gr + 8 * half;
        near[0][sl][half] = i < a.sizes.m ? a.results.sums[line() + i] : INFINITY;
        near[1][sl][half] = deltas[16 * sl + 8 * half + gr];
      }
  }
  auto number = [&](int which, int sl, int half) {
    if constexpr (far)
      return reinterpret_cast<const float*>(
          smem + S::stats)[which * S::BQ + 16 * sl + 8 * half + warp * 16 * Slabs + gr];
    else
      return near[which][sl][half];
  };
  const tile::Shear shear(lane);
  // Slab s carries 2 + 2 s tiles of the strip, and the gradients of a step's last pairs.
  float w[Table ? Slabs : 1][Table ? N + 2 * Slabs : 1][4];
  tile::Back<Parts> back[Slabs];
  Operand waiting = {};  // the first slab's strip
  // Chunks of the ring's rows, as a right operand has them whose columns are the rows, or not.
  const int first_row = begin - pw + 1;
  const uint32_t turn = ((lane / 8 % 2) ^ Rows<D>::swizzle(first_row + Rows<D>::turned_row(lane)))
                        << 4;
  constexpr int together = keep_p || (keep_q && !Apart) ? 2 : N;
  auto strip = [&]<int Count>(std::integral_constant<int, Count>, int lag, int place, int from) {
    tile::add_to_strip<D, S::ring, Count, Parts, unrolled>(w, place, from, of_p, base + S::r, turn,
                                                           lag, sbias, biased, shear);
  };
  // What weights' gradients have of rows of values: a strip of the outputs' gradients.
  float wv[1][Every ? N + 2 : 1][4];
  auto value_strip = [&]<int Count>(std::integral_constant<int, Count>, int lag, int place) {
    tile::add_to_strip<D, S::ring, Count, Parts, unrolled>(wv, place, 0, of_g, base + S::values,
                                                           turn, lag, sbias, false, shear);
  };
  // The position queries' gradient from the scores' of 16 keys, the strip's first lag `lag`.
  auto spread_rows = [&](const Operand(&left)[Slabs], int lag) {
    if constexpr (Apart)
      tile::multiply_ring<D, S::ring, Parts>(dp, left, base + S::r, lag);
    else
      tile::multiply_ring<D, S::ring, Parts>(dq, left, base + S::r, lag);
  };
  auto spread = [&](const Operand(&gradients)[Slabs], int lag) {
    Operand left[Slabs];
#pragma unroll
    for (int sl = 0; sl < Slabs; ++sl) back[sl].strip(left[sl], gradients[sl], shear);
    if constexpr (Slabs == 1) {
      spread_rows(left, lag);
    } else {
      const Operand both[Slabs] = {waiting, left[1]};
      spread_rows(both, lag - 16);
      waiting = left[0];
    }
  };
  const bool lagged = Table && (!Every || a.lagged()),
             tabled = Table && (!Every || a.table.count > 0);
  const bool valued = Every && a.value_table.count > 0;
  if constexpr (Table)
    if (end > begin) {
#pragma unroll
      for (int s = Slabs - 1; s >= 0; --s)
        strip(std::integral_constant<int, 2>(), begin - pw - 15 - 16 * s, -2 * s, s);
      if constexpr (Every) {
        if (valued) value_strip(std::integral_constant<int, 2>(), begin - pw - 15, 0);
      }
    }
#pragma unroll 1
  for (int j0 = begin; j0 < last; j0 += BK) {
    if (j0 + BK < last) {
      load_keys<S, BK>(a, base, unit, j0 + BK);
      load_lags<S, BK>(a, base, unit, j0 + BK - p0 + 1, biased);
    }
    ptx::commit();
    if (j0 < end) {
      const uint32_t tk = base + S::k + (j0 / BK & 1) * S::tile, tv = tk + (S::v - S::k);
      float s[Slabs][N][4] = {};
      const auto meet_keys = [&] {
        tile::multiply_turned<D, BK, Parts, unrolled>(s, of_q, tk + turned);
      };
      if constexpr (Parts > 1) meet_keys();
      if constexpr (Table) {
        if (lagged) {
#pragma unroll
          for (int n = 0; n < N; n += together) {
            strip(std::integral_constant<int, together>(), j0 - pw + 1 + 8 * n, n + 2, 0);
#pragma unroll
            for (int sl = 0; sl < Slabs; ++sl)
#pragma unroll
              for (int o = n; o < n + together; ++o)
                shear.scores<(Parts > 1)>(s[sl][o], w[sl][o], w[sl][o + 1], w[sl][o + 2]);
          }
#pragma unroll
          for (int sl = 0; sl < Slabs; ++sl)
#pragma unroll
            for (int c = 0; c < 2 + 2 * sl; ++c)
#pragma unroll
              for (int e = 0; e < 4; ++e) w[sl][c][e] = w[sl][N + c][e];
        }
      } else if (biased) {
#pragma unroll
        for (int sl = 0; sl < Slabs; ++sl)
#pragma unroll
          for (int n = 0; n < N; ++n)
#pragma unroll
            for (int e = 0; e < 4; ++e) {
              const float x =
                  sbias[(j0 - pw - 16 * sl + 8 * n + 2 * t + (e & 1) - gr - 8 * (e >> 1)) &
                        (S::ring - 1)];
              s[sl][n][e] = Parts > 1 ? s[sl][n][e] + x : x;
            }
      }
      if constexpr (Every) {
        const auto [b, h, kh] = a.place(unit);
        a.add_dense<Parts, false>(s, b, h, iw, j0);
      }
      if constexpr (Parts == 1) meet_keys();
#pragma unroll
      for (int sl = 0; sl < Slabs; ++sl) {
        const float sums[2] = {number(0, sl, 0), number(0, sl, 1)};
#pragma unroll
        for (int n = 0; n < N; ++n)
#pragma unroll
          for (int e = 0; e < 4; ++e)
            s[sl][n][e] =
                weight<Every>(s[sl][n][e], a.scale.log2e, sums[e >> 1], most_exponent<Parts, true>);
      }
      if ((a.mask.causal && j0 + BK - 1 > pw) || j0 + BK > a.sizes.n ||
          a.begins_after(j0, pw + 16 * Slabs - 1) || a.mask.padding)
        a.hide_keys<N>(s, a.place(unit).b, j0, pw, 0.f);
      float ds[Slabs][N][4];
#pragma unroll
      for (int sl = 0; sl < Slabs; ++sl) {
        const float first[2] = {drop ? 0.f : number(1, sl, 0), drop ? 0.f : number(1, sl, 1)};
#pragma unroll
        for (int n = 0; n < N; ++n)
#pragma unroll
          for (int e = 0; e < 4; ++e) ds[sl][n][e] = first[e >> 1];
      }
      if constexpr (Every) {
        if (valued) {
          value_strip(std::integral_constant<int, N>(), j0 - pw + 1, 2);
#pragma unroll
          for (int n = 0; n < N; ++n) {
            float x[4];
            shear.scores(x, wv[0][n], wv[0][n + 1], wv[0][n + 2]);
#pragma unroll
            for (int e = 0; e < 4; ++e) ds[0][n][e] += x[e];
          }
#pragma unroll
          for (int c = 0; c < 2; ++c)
#pragma unroll
            for (int e = 0; e < 4; ++e) wv[0][c][e] = wv[0][N + c][e];
        }
      }
      tile::multiply_turned<D, BK, Parts, D / 16, 0, G>(
          ds, [&](int sl, int x) { return fg[sl][x]; }, tv + turned);
      tile::multiply_turned<D, BK, Parts, far ? 1 : D / 16, G>(ds, of_g, tv + turned);
      if (drop) {
        const RandomKey key = key_now(a.dropout.key);
#pragma unroll
        for (int sl = 0; sl < Slabs; ++sl) {
          const uint32_t bits = kept_of_queries<N>(a, key, line(), iw + 16 * sl, j0);
#pragma unroll
          for (int x = 0; x < 4 * N; ++x) {
            float& d = ds[sl][x / 4][x % 4];
            d = (bits >> x & 1 ? d * a.dropout.keep_scale : 0) + number(1, sl, x / 2 % 2);
          }
        }
      }
#pragma unroll
      for (int sl = 0; sl < Slabs; ++sl)
#pragma unroll
        for (int n = 0; n < N; ++n)
#pragma unroll
          for (int e = 0; e < 4; ++e) ds[sl][n][e] *= s[sl][n][e];
      if constexpr (Every) {
        if (a.gradients.dense.data) {
          float* const to = a.gradients.dense.of<float>(a.place(unit).b, a.place(unit).h);
          each_score<false>(ds, iw, j0, [&](int query, int key, float x) {
            if (query < a.sizes.m && key < a.sizes.n)
              to[query * a.gradients.dense.query + key * a.gradients.dense.key] += x;
          });
        }
      }
#pragma unroll
      for (int x = 0; x < N / 2; ++x) {
        Operand left[Slabs];
#pragma unroll
        for (int sl = 0; sl < Slabs; ++sl) tile::pack(left[sl], ds[sl][2 * x], ds[sl][2 * x + 1]);
        tile::multiply<D, BK, Parts>(dq, left, tk + sixteen + x * 16 * P);
        if constexpr (Table) {
          if (tabled) spread(left, j0 - pw - 15 + 16 * x);
        }
      }
    }
    ptx::wait<0>();
    __syncthreads();  // the next tile is there, and this one's place is free
  }
  if constexpr (Table)
    if (end > begin) {  // what the last step left, and what waits
      const Operand none[Slabs] = {};
#pragma unroll
      for (int s = 0; s < Slabs; ++s) spread(none, (end + BK - 1) / BK * BK - pw - 15 + 16 * s);
    }
  const bool one = Every && !a.gradients.p.data;  // queries that meet both keys and rows
  if (one) {
#pragma unroll
    for (int x = 0; x < D / 8; ++x)
#pragma unroll
      for (int e = 0; e < 4; ++e) dq[0][x][e] += dp[0][x][e];
  }
  const auto [b, h, kh] = a.place(unit);
#pragma unroll
  for (int sl = 0; sl < Slabs; ++sl)
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int i = iw + 16 * sl + gr + 8 * half;
      put_row<D, Parts>(a.gradients.q, b, h, i, a.sizes.m,
                        [&](int x, int e) { return dq[sl][x][2 * half + e] * a.scale.score; });
      if constexpr (Apart) {
        if (!one)
          put_row<D, Parts>(a.gradients.p, b, h, i, a.sizes.m,
                            [&](int x, int e) { return dp[sl][x][2 * half + e] * a.scale.score; });
      }
    }
}

template <int D, int Parts, int BK, int Slabs, int Warps, int Q, int G, bool Drop, Positions Of>
void launch_queries(AttentionArgs a, int device) {
  using S = QueriesShape<D, Parts, BK, Slabs, Warps, Of>;
  // Entries and heads at a time.
  const int batch = a.gradients.dense.data && a.gradients.dense.batch == 0 ? 1 : a.sizes.batch;
  const int heads = a.gradients.dense.data && a.gradients.dense.head == 0 ? 1 : a.sizes.heads;
  a.grid.unit_step = heads == 1 ? a.sizes.heads : 1;
  for (int b = 0; b < a.sizes.batch; b += batch)
    for (int h = 0; h < a.sizes.heads; h += heads) {
      a.grid.first_unit = b * a.sizes.heads + h;
      launch_with_shared("attention", device,
                         attention_queries<D, Parts, BK, Slabs, Warps, Q, G, Drop, Of>,
                         dim3(unsigned(batch * heads), unsigned(ceil_div(a.sizes.m, S::BQ))),
                         dim3(Warps * 32), S::bytes, a);
    }
}

}  // namespace

void launch_attention_queries(const AttentionArgs& a, int d, int device) {
  with_positions(a, [&]<Positions Of>(At<Of>) {
    if (a.sizes.parts > 1) {
      launch_queries<64, 3, Of == Positions::none ? 32 : 16, 1, 4, 0, 0, true, Of>(a, device);
    } else if constexpr (Of == Positions::every) {
      d <= 64 ? launch_queries<64, 1, 32, 1, 4, 0, 0, true, Of>(a, device)
              : launch_queries<128, 1, 32, 1, 4, 0, 0, true, Of>(a, device);
    } else if (d <= 32) {
      launch_queries<32, 1, 64, 1, 8, 2, 2, true, Of>(a, device);
    } else if (d <= 64 && a.dropout.below > 0) {
      launch_queries<64, 1, 64, 1, 8, 0, 0, true, Of>(a, device);
    } else if (d <= 64) {
      if constexpr (Of == Positions::none)
        launch_queries<64, 1, 32, 2, 4, 4, 4, false, Of>(a, device);
      else if constexpr (Of == Positions::shared)
        launch_queries<64, 1, 32, 2, 4, 4, 2, false, Of>(a, device);
      else
        launch_queries<64, 1, 32, 2, 4, 0, 0, false, Of>(a, device);
    } else {
      launch_queries<128, 1, 32, 1, 8, 0, 0, true, Of>(a, device);
    }
  });
}

}  // namespace stretto::cuda
