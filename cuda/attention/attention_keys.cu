// Fused attention, backward: gradients of keys and values.
//
// A warp owns 16 or 32 keys of a key head and walks the queries that see any of them, 32 at a time,
// head by head. Scores are made turned over, keys × queries, so that Pᵀ and dSᵀ are at once the
// left operands of dV = Pᵀ g and dK = scale · dSᵀ Q. What relative positions add comes as lags ×
// queries, of which column c moves up by 7 − c rows. A warp leaves out the tiles that see none of
// its keys. The sums of dSᵀ's rows are the gradient of a bias that all queries share.
// Tested against the composed form in f64.
#include "cuda/attention/attention.cuh"

namespace stretto::cuda {
namespace {

using tile::Rows;

template <int D, int Parts, int Slabs, int Warps, Positions Of>
struct KeysShape : AttentionShape<D, Parts, Warps, Of> {
  using Base = AttentionShape<D, Parts, Warps, Of>;
  using Base::Apart, Base::Every, Base::Table, Base::row;
  static constexpr int BQ = Every && D > 64 ? 16 : 32;
  static constexpr int rows = 16 * Slabs * Warps, ring = tile::ring_of(rows + 2 * BQ);
  static constexpr int tile = BQ * row;
  static constexpr int k = 0, v = k + rows * row, q = v + rows * row, g = q + 2 * tile;
  static constexpr int p = Apart ? g + 2 * tile : q, r = (Apart ? p : g) + 2 * tile;
  static constexpr int values = r + (Table ? ring * row : 0);
  static constexpr int stats = values + (Every ? ring * row : 0), bias = stats + 4 * BQ * 4;
  static constexpr int bytes = bias + ring * 4;
};

/// dk [B, G, N, D] and dv [B, G, N, Dv] from q, k, v, g [B, H, M, Dv], sums and delta [B, H, M]
template <int D, int Parts, int Slabs, int Warps, int PerSM, bool Drop, Positions Of>
__global__ void __launch_bounds__(Warps * 32, PerSM)
    attention_keys(const __grid_constant__ AttentionArgs a) {
  using S = KeysShape<D, Parts, Slabs, Warps, Of>;
  constexpr bool Table = S::Table, Apart = S::Apart, Every = S::Every;
  constexpr int BQ = S::BQ, Threads = Warps * 32, P = 2 * D, N = BQ / 8;
  using Operand = tile::Fragment<Parts>;
  extern __shared__ __align__(256) char smem[];
  const uint32_t base = ptx::shared_address(smem);
  const float* const stats =
      reinterpret_cast<const float*>(smem + S::stats);  // [2][sums, delta][BQ]
  const float* const sbias = reinterpret_cast<const float*>(smem + S::bias);
  const bool biased = a.lag_bias.width > 0;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, gr = lane / 4, t = lane % 4;
  const int first_unit = int(blockIdx.x) * a.sizes.per_group;
  const int j0 = blockIdx.y * S::rows, jw = j0 + warp * Slabs * 16;
  const int first = a.mask.causal ? max(0, j0 - a.sizes.shift) : 0;
  const int end = min(a.sizes.m, a.end_position(min(j0 + S::rows, a.sizes.n) - 1) - a.sizes.shift);
  const int tiles = end > first ? (end - first + BQ - 1) / BQ : 0;
  {
    const auto [b, h, kh] = a.place(first_unit);
    tile::load_rows<D, Threads, S::rows, Parts>(base + S::k, a.operands.k.source(b, kh), j0,
                                                a.sizes.n);
    tile::load_rows<D, Threads, S::rows, Parts>(base + S::v, a.operands.v.source(b, kh), j0,
                                                a.sizes.n);
  }

  float dk[Slabs][D / 8][4] = {}, dv[Slabs][D / 8][4] = {};
  const uint32_t sixteen = Rows<D>::sixteen(lane), turned = Rows<D>::turned(lane);
  const uint32_t own = base + warp * Slabs * 16 * P + sixteen;
  const tile::RowShear shear(lane, 7, -1);
#pragma unroll 1
  for (int unit = first_unit; unit < first_unit + a.sizes.per_group; ++unit) {
    if (tiles > 0) {
      load_queries<S>(a, base, unit, first, 0);
      load_lags<S, S::rows + BQ>(a, base, unit, j0 - (first + a.sizes.shift) - (BQ - 1), biased);
    }
    ptx::commit();
    ptx::wait<0>();
    __syncthreads();
    float sum_ds[Slabs][2] = {};
#pragma unroll 1
    for (int step = 0; step < tiles; ++step) {
      const int i0 = first + step * BQ, now = step & 1;
      if (step + 1 < tiles) {
        load_queries<S>(a, base, unit, i0 + BQ, now ^ 1);
        load_lags<S, BQ>(a, base, unit, j0 - (i0 + BQ + a.sizes.shift) - (BQ - 1), biased);
      }
      ptx::commit();
      if (!a.mask.causal || i0 + a.sizes.shift + BQ > jw) {
        const uint32_t tq = base + S::q + now * S::tile, tg = base + S::g + now * S::tile;
        const uint32_t tp = base + S::p + now * S::tile;
        const float* const st = stats + now * 2 * BQ + 2 * t;
        float s[Slabs][N][4] = {};
        auto of_k = [&](int sl, int x) {
          Operand f;
          tile::load(f, (own + S::k + sl * 16 * P) ^ (x << 5), S::rows * P);
          return f;
        };
        constexpr bool joined = Table && !Apart && Parts == 1;
        if constexpr (Parts > 1)
          tile::multiply_turned<D, BQ, Parts, D / 16, 0, D / 16, true>(s, of_k, tq + turned);
        const int low = jw - (i0 + a.sizes.shift) - (BQ - 1);  // the lag of strip row 0
        if constexpr (Table) {
          if (!Every || a.lagged())
            tile::turned_strip<D, S::ring, BQ, Parts, Slabs, N, true>(
                base + S::r, low, tp + turned, shear,
                [&](int o) { return biased ? sbias[(low + 8 * o + gr) & (S::ring - 1)] : 0.f; },
                [&](int x, const auto& f) {
                  if constexpr (joined) {
#pragma unroll
                    for (int sl = 0; sl < Slabs; ++sl) {
                      const Operand left = of_k(sl, x);
#pragma unroll
                      for (int n = 0; n < N; ++n) tile::multiply(s[sl][n], left, f[n / 2], n % 2);
                    }
                  }
                },
                [&](float x, int sl, int n, int e) { s[sl][n][e] += x; });
        } else if (biased) {
#pragma unroll
          for (int sl = 0; sl < Slabs; ++sl)
#pragma unroll
            for (int n = 0; n < N; ++n)
#pragma unroll
              for (int e = 0; e < 4; ++e) {
                const float x = sbias[(jw + 16 * sl + gr + 8 * (e >> 1) - i0 - a.sizes.shift -
                                       8 * n - 2 * t - (e & 1)) &
                                      (S::ring - 1)];
                s[sl][n][e] = Parts > 1 ? s[sl][n][e] + x : x;
              }
        }
        if constexpr (Every) {
          const auto [b, h, kh] = a.place(unit);
          a.add_dense<Parts, true>(s, b, h, i0, jw);
        }
        uint32_t keep_bits = 0;  // 16 for each slab
        auto of_v = [&](int sl, int x) {
          Operand f;
          tile::load(f, (own + S::v + sl * 16 * P) ^ (x << 5), S::rows * P);
          return f;
        };
        // Weights of the tile's queries, those that are kept, times their rows.
        auto gather = [&](float(&d)[Slabs][D / 8][4], const float(&x)[Slabs][N][4], uint32_t right,
                          bool masked) {
#pragma unroll
          for (int y = 0; y < N / 2; ++y) {
            Operand l[Slabs];
#pragma unroll
            for (int sl = 0; sl < Slabs; ++sl) {
              tile::pack(l[sl], x[sl][2 * y], x[sl][2 * y + 1]);
              if (masked) tile::keep_pairs(l[sl], keep_bits >> (16 * sl + 8 * y));
            }
            tile::multiply<D, BQ, Parts>(d, l, right + sixteen + y * 16 * P);
          }
        };
        if constexpr (!joined && Parts == 1)
          tile::multiply_turned<D, BQ, Parts>(s, of_k, tq + turned);
#pragma unroll
        for (int n = 0; n < N; ++n) {
          const float2 sum = *reinterpret_cast<const float2*>(st + n * 8);
#pragma unroll
          for (int sl = 0; sl < Slabs; ++sl)
#pragma unroll
            for (int e = 0; e < 4; ++e)
              s[sl][n][e] = weight<Every>(s[sl][n][e], a.scale.log2e, e & 1 ? sum.y : sum.x,
                                          most_exponent<Parts, true>);
        }
        const int p0 = i0 + a.sizes.shift;
        if ((a.mask.causal && jw + 16 * Slabs - 1 > p0) || a.begins_after(jw, p0 + BQ - 1) ||
            i0 + BQ > a.sizes.m) {
#pragma unroll
          for (int c = 0; c < BQ / 4; ++c) {
            const int position = p0 + 8 * (c / 2) + 2 * t + c % 2;
            const int low = a.first_key(position) - jw - gr;
            const int high = position < a.sizes.n ? a.end_key(position) - jw - gr : -(1 << 30);
#pragma unroll
            for (int r = 0; r < 2 * Slabs; ++r)
              if (8 * r < low || 8 * r >= high) s[r / 2][c / 2][2 * (r % 2) + c % 2] = 0;
          }
        }
        const bool drop = Drop && a.dropout.below > 0;
        if (drop) {
          const RandomKey key = key_now(a.dropout.key);
#pragma unroll
          for (int sl = 0; sl < Slabs; ++sl)
            keep_bits |= kept_of_keys<N>(a, key, int64_t(unit) * a.sizes.m, i0, jw + 16 * sl, 0)
                         << (16 * sl);
        }
        gather(dv, s, tg, drop);
        float ds[Slabs][N][4];
#pragma unroll
        for (int n = 0; n < N; ++n) {
          const float2 delta =
              drop ? float2{0, 0} : *reinterpret_cast<const float2*>(st + BQ + n * 8);
#pragma unroll
          for (int sl = 0; sl < Slabs; ++sl) {
            ds[sl][n][0] = ds[sl][n][2] = delta.x;
            ds[sl][n][1] = ds[sl][n][3] = delta.y;
          }
        }
        if constexpr (Every) {
          if (a.value_table.count > 0)
            tile::turned_strip<D, S::ring, BQ, Parts, Slabs, N, true>(
                base + S::values, low, tg + turned, shear, [](int) { return 0.f; },
                [](int, const auto&) {}, [&](float x, int sl, int n, int e) { ds[sl][n][e] += x; });
        }
        tile::multiply_turned<D, BQ, Parts>(ds, of_v, tg + turned);
        if (drop) {
#pragma unroll
          for (int n = 0; n < N; ++n) {
            const float2 delta = *reinterpret_cast<const float2*>(st + BQ + n * 8);
#pragma unroll
            for (int sl = 0; sl < Slabs; ++sl)
#pragma unroll
              for (int e = 0; e < 4; ++e)
                ds[sl][n][e] =
                    (keep_bits >> (16 * sl + 4 * n + e) & 1 ? ds[sl][n][e] * a.dropout.keep_scale
                                                            : 0) +
                    (e & 1 ? delta.y : delta.x);
          }
        }
#pragma unroll
        for (int sl = 0; sl < Slabs; ++sl)
#pragma unroll
          for (int n = 0; n < N; ++n)
#pragma unroll
            for (int e = 0; e < 4; ++e) ds[sl][n][e] *= s[sl][n][e];
        if constexpr (Every) {
#pragma unroll
          for (int sl = 0; sl < Slabs; ++sl)
#pragma unroll
            for (int n = 0; n < N; ++n)
#pragma unroll
              for (int e = 0; e < 4; ++e) sum_ds[sl][e >> 1] += ds[sl][n][e];
        }
        gather(dk, ds, tq, false);
      }
      ptx::wait<0>();
      __syncthreads();  // the next tile is there, and this one's place is free
    }
    if constexpr (Every) {
#pragma unroll
      for (int sl = 0; sl < Slabs; ++sl)
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          const int j = jw + sl * 16 + gr + 8 * half;
          float sum = sum_ds[sl][half];
          sum += __shfl_xor_sync(0xffffffffu, sum, 1);
          sum += __shfl_xor_sync(0xffffffffu, sum, 2);
          if (a.gradients.key_bias && t == 0 && j < a.sizes.n)
            a.gradients.key_bias[int64_t(unit) * a.sizes.n + j] =
                a.hidden(a.place(unit).b, j) ? 0 : sum;
        }
    }
  }
  const auto [b, h, kh] = a.place(first_unit);
  // What nobody sees has no gradient.
  const auto leave = [&, b = b, kh = kh](const HeadRows<void>& to, const auto& d, float factor) {
#pragma unroll
    for (int sl = 0; sl < Slabs; ++sl)
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int j = tile::fresh(jw) + sl * 16 + gr + 8 * half;
        const bool seen = !a.hidden(b, j);
        put_row<D, Parts>(to, b, kh, j, a.sizes.n,
                          [&](int x, int e) { return seen ? d[sl][x][2 * half + e] * factor : 0; });
      }
  };
  leave(a.gradients.k, dk, a.scale.score);
  leave(a.gradients.v, dv, a.dropout.keep_scale);
}

template <int D, int Parts, int Slabs, int Warps, int PerSM, bool Drop, Positions Of>
void launch_keys(const AttentionArgs& a, int device) {
  using S = KeysShape<D, Parts, Slabs, Warps, Of>;
  launch_with_shared("attention", device, attention_keys<D, Parts, Slabs, Warps, PerSM, Drop, Of>,
                     dim3(unsigned(a.sizes.batch * (a.sizes.heads / a.sizes.per_group)),
                          unsigned(ceil_div(a.sizes.n, S::rows))),
                     dim3(Warps * 32), S::bytes, a);
}

}  // namespace

void launch_attention_keys(const AttentionArgs& a, int d, int device) {
  with_positions(a, [&]<Positions Of>(At<Of>) {
    if (a.sizes.parts > 1)
      launch_keys<64, 3, 1, 4, 1, true, Of>(a, device);
    else if constexpr (Of == Positions::every)
      d <= 64 ? launch_keys<64, 1, 1, 4, 2, true, Of>(a, device)
              : launch_keys<128, 1, 1, 4, 1, true, Of>(a, device);
    else if (d <= 32)
      launch_keys<32, 1, 2, 4, 2, true, Of>(a, device);
    else if (d <= 64 && a.dropout.below > 0)
      launch_keys<64, 1, 1, 8, 1, true, Of>(a, device);
    else if (d <= 64)
      launch_keys<64, 1, 2, 4, 2, false, Of>(a, device);
    else
      launch_keys<128, 1, 1, 8, 1, true, Of>(a, device);
  });
}

}  // namespace stretto::cuda
