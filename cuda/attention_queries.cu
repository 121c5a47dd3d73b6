// Fused attention, backward: gradients of queries and of position queries.
//
// A warp owns 16 queries and walks the keys that any of its block sees in tiles, as forward does:
// dQ = scale · dS K. For the position queries the scores' gradients go back into the strip, [16
// queries, lags], and meet the rows of the table there. Tiles of the strip that straddle two steps
// belong to the same queries, so two are carried on either way.
// Tested against the composed form in f64.
#include "cuda/attention.cuh"

namespace stretto::cuda {
namespace {

using tile::Rows;

template <int D, int Parts, int BK, int Warps, bool Table, bool Apart>
struct QueriesShape {
  static constexpr int BQ = 16 * Warps, ring = tile::ring_of(BQ + 2 * BK);
  static constexpr int row = Parts * D * 2, tile = BK * row;
  static constexpr int q = 0, g = q + BQ * row, p = Apart ? g + BQ * row : q;
  static constexpr int k = (Apart ? p : g) + BQ * row, v = k + 2 * tile, r = v + 2 * tile;
  static constexpr int bias = r + (Table ? ring * row : 0), bytes = bias + ring * 4;
};

/// dq and dp [B, H, M, D] from q, k, v, g [B, H, M, Dv], sums and delta [B, H, M]. Keep: fragments
/// of q, p and g stay in registers.
template <int D, int Parts, int BK, int Warps, bool Table, bool Apart, bool Keep, bool Drop>
__global__ void __launch_bounds__(Warps * 32, 1)
    attention_queries(const __grid_constant__ AttentionArgs a) {
  using S = QueriesShape<D, Parts, BK, Warps, Table, Apart>;
  constexpr int Threads = Warps * 32, P = 2 * D, Kept = Keep ? D / 16 : 1;
  extern __shared__ __align__(256) char smem[];
  const uint32_t base = ptx::shared_address(smem);
  const float* const sbias = reinterpret_cast<const float*>(smem + S::bias);
  const bool biased = a.width > 0, drop = Drop && a.drop_below > 0;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, gr = lane / 4, t = lane % 4;
  const int b = blockIdx.x / a.heads, h = blockIdx.x % a.heads, kh = h / a.per_group;
  const int i0 = int(gridDim.y - 1 - blockIdx.y) * S::BQ, p0 = i0 + a.shift;
  const int iw = i0 + 16 * warp, pw = iw + a.shift;
  const int begin = a.first_key(p0) / BK * BK;
  const int end = a.end_key(min(i0 + S::BQ, a.m) - 1 + a.shift);
  const int tiles = end > begin ? (end - begin + BK - 1) / BK : 0;
  const auto keys = a.k.source(b, kh), values = a.v.source(b, kh);
  auto load_tile = [&](int j, int half) {
    tile::load_rows<D, Threads, Parts>(base + S::k + half * S::tile, keys, j, BK, a.n);
    tile::load_rows<D, Threads, Parts>(base + S::v + half * S::tile, values, j, BK, a.n);
  };
  auto load_lags = [&](int lag, int count) {
    if (Table)
      tile::load_ring<D, S::ring, Threads, Parts>(base + S::r, a.table.source(0, h), lag, count,
                                                  a.zero_row, a.rows);
    if (Table || biased)
      tile::load_line_ring<S::ring, Threads>(base + S::bias, a.bias_of(h), lag, count, -a.first,
                                             a.width);
  };
  tile::load_rows<D, Threads, Parts>(base + S::q, a.q.source(b, h), i0, S::BQ, a.m);
  tile::load_rows<D, Threads, Parts>(base + S::g, a.g.source(b, h), i0, S::BQ, a.m);
  if (Apart) tile::load_rows<D, Threads, Parts>(base + S::p, a.p.source(b, h), i0, S::BQ, a.m);
  if (tiles > 0) {
    load_tile(begin, 0);
    load_lags(begin - (p0 + S::BQ - 1), S::BQ + BK);
  }
  ptx::commit();
  ptx::wait<0>();
  __syncthreads();

  const uint32_t eight = Rows<D>::eight(lane), sixteen = Rows<D>::sixteen(lane);
  const uint32_t mine = base + warp * 16 * P + sixteen;
  tile::Fragment<Parts> fq[Kept], fp[Keep && Apart ? D / 16 : 1], fg[Kept];
  if (Keep) {
#pragma unroll
    for (int x = 0; x < Kept; ++x) {
      tile::load(fq[x], (mine + S::q) ^ (x << 5), S::BQ * P);
      tile::load(fg[x], (mine + S::g) ^ (x << 5), S::BQ * P);
      if constexpr (Keep && Apart) tile::load(fp[x], (mine + S::p) ^ (x << 5), S::BQ * P);
    }
  }
  float dq[D / 8][4] = {}, dp[Apart ? D / 8 : 1][4] = {};
  float sum[2], delta[2];
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int i = iw + gr + 8 * half;
    const int64_t at = int64_t(blockIdx.x) * a.m + i;
    sum[half] = i < a.m ? a.sums[at] : INFINITY;
    delta[half] = i < a.m ? a.delta[at] : 0.f;
  }
  const tile::Shear shear(lane);
  float w[Table ? BK / 8 + 2 : 1][4];  // the strip; its first two tiles are those carried
  float last[4] = {}, before[4] = {};  // dS of the step before, its last two tiles
  const uint32_t turn = ((lane / 8) ^ Rows<D>::swizzle(begin - pw - 15 + lane % 8)) << 4;
  auto strip = [&](float(&d)[4], int lag) {  // 16 queries × 8 lags
    d[0] = d[2] = sbias[(lag + 2 * t) & (S::ring - 1)];
    d[1] = d[3] = sbias[(lag + 2 * t + 1) & (S::ring - 1)];
    const uint32_t at = base + S::r + ((lag + lane % 8) & (S::ring - 1)) * P;
#pragma unroll
    for (int x = 0; x < D / 32; ++x) {
      tile::Fragment<Parts> f;
      tile::load(f, at + (turn ^ (x << 6)), S::ring * P);
#pragma unroll
      for (int y = 0; y < 2; ++y) {
        if constexpr (Keep && Apart) {
          tile::multiply(d, fp[2 * x + y], f, y);
        } else if constexpr (Keep) {
          tile::multiply(d, fq[2 * x + y], f, y);
        } else {
          tile::Fragment<Parts> left;
          tile::load(left, (mine + S::p) ^ ((2 * x + y) << 5), S::BQ * P);
          tile::multiply(d, left, f, y);
        }
      }
    }
  };
  // The position query's gradient from 16 lags of the strip's.
  auto spread = [&](const tile::Fragment<Parts>& left, int lag) {
    const int row = lag + lane % 16;
    const uint32_t at = base + S::r + (row & (S::ring - 1)) * P;
    const uint32_t way = ((lane / 16) ^ Rows<D>::swizzle(row)) << 4;
#pragma unroll
    for (int n = 0; n < D / 16; ++n) {
      tile::Fragment<Parts> f;
      tile::load_trans(f, at + (way ^ (n << 5)), S::ring * P);
#pragma unroll
      for (int y = 0; y < 2; ++y) {
        if constexpr (Apart)
          tile::multiply(dp[2 * n + y], left, f, y);
        else
          tile::multiply(dq[2 * n + y], left, f, y);
      }
    }
  };
  if constexpr (Table)
    if (tiles > 0) {
      strip(w[0], begin - pw - 15);
      strip(w[1], begin - pw - 7);
    }
  const int first_last = a.first_key(pw + 15);
#pragma unroll 1
  for (int step = 0; step < tiles; ++step) {
    const int j0 = begin + step * BK, now = step & 1, low = j0 - pw - 15;
    if (step + 1 < tiles) {
      load_tile(j0 + BK, now ^ 1);
      load_lags(j0 + BK - p0 + 1, BK);
    }
    ptx::commit();
    const uint32_t tk = base + S::k + now * S::tile, tv = base + S::v + now * S::tile;
    float s[BK / 8][4] = {};
    if constexpr (Table) {
#pragma unroll
      for (int n = 0; n < BK / 8; ++n) {
        strip(w[n + 2], low + 8 * (n + 2));
        shear.scores(s[n], w[n], w[n + 1], w[n + 2]);
      }
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        w[0][e] = w[BK / 8][e];
        w[1][e] = w[BK / 8 + 1][e];
      }
    } else if (biased) {
#pragma unroll
      for (int n = 0; n < BK / 8; ++n)
#pragma unroll
        for (int e = 0; e < 4; ++e)
          s[n][e] = sbias[(j0 - pw + 8 * n + 2 * t + (e & 1) - gr - 8 * (e >> 1)) & (S::ring - 1)];
    }
    auto product = [&](float(&d)[BK / 8][4], const tile::Fragment<Parts>(&kept)[Kept],
                       uint32_t left, uint32_t right) {
#pragma unroll
      for (int x = 0; x < D / 32; ++x) {
        tile::Fragment<Parts> l[2];
#pragma unroll
        for (int y = 0; y < 2; ++y) {
          if constexpr (Keep)
            l[y] = kept[2 * x + y];
          else
            tile::load(l[y], (mine + left) ^ ((2 * x + y) << 5), S::BQ * P);
        }
#pragma unroll
        for (int n = 0; n < BK / 8; ++n) {
          tile::Fragment<Parts> f;
          tile::load(f, (right + eight + n * 8 * P) ^ (x << 6), BK * P);
          tile::multiply(d[n], l[0], f, 0);
          tile::multiply(d[n], l[1], f, 1);
        }
      }
    };
    product(s, fq, S::q, tk);
#pragma unroll
    for (int n = 0; n < BK / 8; ++n)
#pragma unroll
      for (int e = 0; e < 4; ++e) s[n][e] = ptx::ex2(s[n][e] * a.scale2 - sum[e >> 1]);
    if ((a.causal && j0 + BK - 1 > pw) || j0 + BK > a.n || first_last > j0 || a.padding) {
      uint32_t padded = 0;
      if (a.padding) {
#pragma unroll
        for (int c = 0; c < BK / 4; ++c)
          padded |= uint32_t(a.hidden(b, j0 + 8 * (c / 2) + 2 * t + c % 2)) << c;
      }
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int position = pw + gr + 8 * half;
        const int from = a.first_key(position) - j0 - 2 * t;
        const int to = a.end_key(position) - j0 - 2 * t;
#pragma unroll
        for (int c = 0; c < BK / 4; ++c) {
          const int j = 8 * (c / 2) + c % 2;
          if (j < from || j >= to || (padded >> c & 1)) s[c / 2][2 * half + c % 2] = 0;
        }
      }
    }
    float ds[BK / 8][4];
#pragma unroll
    for (int n = 0; n < BK / 8; ++n)
#pragma unroll
      for (int e = 0; e < 4; ++e) ds[n][e] = drop ? 0.f : delta[e >> 1];
    product(ds, fg, S::g, tv);
    if (drop) {
      const uint32_t bits =
          kept_of_queries<BK / 8>(a, key_now(a.key), int64_t(blockIdx.x) * a.m, iw, j0);
#pragma unroll
      for (int x = 0; x < BK / 2; ++x) {
        float& d = ds[x / 4][x % 4];
        d = (bits >> x & 1 ? d * a.keep_scale : 0) + delta[x / 2 % 2];
      }
    }
#pragma unroll
    for (int n = 0; n < BK / 8; ++n)
#pragma unroll
      for (int e = 0; e < 4; ++e) ds[n][e] *= s[n][e];
#pragma unroll
    for (int x = 0; x < BK / 16; ++x) {
      tile::Fragment<Parts> left;
      tile::pack(left, ds[2 * x], ds[2 * x + 1]);
#pragma unroll
      for (int n = 0; n < D / 16; ++n) {
        tile::Fragment<Parts> f;
        tile::load_trans(f, (tk + sixteen + x * 16 * P) ^ (n << 5), BK * P);
        tile::multiply(dq[2 * n], left, f, 0);
        tile::multiply(dq[2 * n + 1], left, f, 1);
      }
    }
    if constexpr (Table) {
#pragma unroll
      for (int x = 0; x < BK / 8; x += 2) {
        float even[4], odd[4];
        shear.strip(even, x == 0 ? before : ds[x == 0 ? 0 : x - 2],
                    x == 0 ? last : ds[x == 0 ? 0 : x - 1], ds[x]);
        shear.strip(odd, x == 0 ? last : ds[x == 0 ? 0 : x - 1], ds[x], ds[x + 1]);
        tile::Fragment<Parts> left;
        tile::pack(left, even, odd);
        spread(left, low + 8 * x);
      }
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        last[e] = ds[BK / 8 - 1][e];
        before[e] = ds[BK / 8 - 2][e];
      }
    }
    ptx::wait<0>();
    __syncthreads();  // the next tile is there, and this one's place is free
  }
  if constexpr (Table)
    if (tiles > 0) {  // the two tiles that the last step left
      const float none[4] = {};
      float even[4], odd[4];
      shear.strip(even, before, last, none);
      shear.strip(odd, last, none, none);
      tile::Fragment<Parts> left;
      tile::pack(left, even, odd);
      spread(left, begin + tiles * BK - pw - 15);
    }
  // Out through the warp's own rows of the places of q and g or p.
  constexpr int other = Apart ? S::p : S::q;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int r = warp * 16 + gr + 8 * half;
#pragma unroll
    for (int x = 0; x < D / 8; ++x) {
      const uint32_t at = Rows<D>::at(r, x) + 4 * t;
      put<Parts>(smem + S::q + at, a.dq, b, h, i0 + r, a.m, x, dq[x][2 * half] * a.scale,
                 dq[x][2 * half + 1] * a.scale);
      if constexpr (Apart)
        put<Parts>(smem + other + at, a.dp, b, h, i0 + r, a.m, x, dp[x][2 * half] * a.scale,
                   dp[x][2 * half + 1] * a.scale);
    }
  }
  if (Parts > 1) return;
  __syncwarp();
#pragma unroll 1
  for (int c = lane; c < 16 * (D / 8); c += 32) {
    const int r = warp * 16 + c / (D / 8), x = c % (D / 8);
    if (i0 + r >= a.m || x >= a.dq.chunks) continue;
    const uint32_t at = Rows<D>::at(r, x);
    *reinterpret_cast<uint4*>(a.dq.at(b, h, i0 + r) + x * 8) =
        *reinterpret_cast<const uint4*>(smem + S::q + at);
    if (Apart)
      *reinterpret_cast<uint4*>(a.dp.at(b, h, i0 + r) + x * 8) =
          *reinterpret_cast<const uint4*>(smem + other + at);
  }
}

template <int D, int Parts, int BK, int Warps, bool Table, bool Apart, bool Keep, bool Drop>
void launch_queries(const AttentionArgs& a, int device) {
  using S = QueriesShape<D, Parts, BK, Warps, Table, Apart>;
  launch_with_shared("attention", device,
                     attention_queries<D, Parts, BK, Warps, Table, Apart, Keep, Drop>,
                     dim3(unsigned(a.batch * a.heads), unsigned(ceil_div(a.m, S::BQ))),
                     dim3(Warps * 32), S::bytes, a);
}

template <int D, int Parts, int BK, int Warps, bool Keep, bool Drop>
void choose_queries(const AttentionArgs& a, int device) {
  if (!a.table.data)
    launch_queries<D, Parts, BK, Warps, false, false, Keep, Drop>(a, device);
  else if (a.p.data == a.q.data)
    launch_queries<D, Parts, BK, Warps, true, false, Keep, Drop>(a, device);
  else
    launch_queries<D, Parts, BK, Warps, true, true, Keep, Drop>(a, device);
}

}  // namespace

void launch_attention_queries(const AttentionArgs& a, int d, int device) {
  if (a.parts > 1)
    choose_queries<64, 3, 32, 4, false, true>(a, device);
  else if (d <= 32)
    choose_queries<32, 1, 64, 8, true, true>(a, device);
  else if (d <= 64 && a.drop_below > 0)
    choose_queries<64, 1, 64, 8, false, true>(a, device);
  else if (d <= 64)
    choose_queries<64, 1, 64, 8, true, false>(a, device);
  else
    choose_queries<128, 1, 32, 8, false, true>(a, device);
}

}  // namespace stretto::cuda
