// Fused attention, backward: gradients of the rows of relative positions and of the lags' bias.
//
// A block owns 128 lags of a head, a warp 16 or 32 of them, and walks the queries that see a key
// that far away, 32 at a time. All is turned over, lags × queries: what queries make with keys and
// values comes as keys × queries, of which column c moves up by c rows, so that dSᵀ is at once the
// left operand of dR = scale · dSᵀ P, and the bias' gradient the sum of a row. Keys and values lie
// in rings, as each step needs 32 new ones.
//
// The batch, and each entry's queries, are cut into as many segments as fill the GPU; their parts
// are added in order by a second launch.
// Tested against the composed form in f64.
#include "cuda/attention.cuh"

namespace stretto::cuda {
namespace {

using tile::Rows;

template <int D, int Parts, int Slabs, int Warps, bool Table, bool Apart>
struct LagsShape {
  static constexpr int BQ = 32, rows = 16 * Slabs * Warps, ring = tile::ring_of(rows + 2 * BQ);
  static constexpr int row = Parts * D * 2, tile = BQ * row;
  static constexpr int r = 0, q = Table ? rows * row : 0, g = q + 2 * tile;
  static constexpr int p = Apart ? g + 2 * tile : q, k = (Apart ? p : g) + 2 * tile;
  static constexpr int v = k + ring * row, stats = v + ring * row, bytes = stats + 4 * BQ * 4;
};

/// dtable [segments, H, R, D] and dbias [segments, H, W] from q, k, v, g, sums and delta [B, H, M]
template <int D, int Parts, int Slabs, int Warps, int PerSM, bool Table, bool Apart, bool Drop>
__global__ void __launch_bounds__(Warps * 32, PerSM)
    attention_lags(const __grid_constant__ AttentionArgs a) {
  using S = LagsShape<D, Parts, Slabs, Warps, Table, Apart>;
  constexpr int BQ = S::BQ, Threads = Warps * 32, P = 2 * D;
  extern __shared__ __align__(256) char smem[];
  const uint32_t base = ptx::shared_address(smem);
  const float* const stats =
      reinterpret_cast<const float*>(smem + S::stats);  // [2][sums, delta][BQ]
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, gr = lane / 4, t = lane % 4;
  const int h = blockIdx.x % a.heads, segment = blockIdx.x / a.heads, kh = h / a.per_group;
  const int lag0 = a.high_lag + 1 - int(blockIdx.y + 1) * S::rows, lw = lag0 + warp * Slabs * 16;
  const int first = max(0, -(lag0 + S::rows - 1) - a.shift);
  const int end = min(a.m, a.n - lag0 - a.shift);
  const int all_tiles = end > first ? (end - first + BQ - 1) / BQ : 0;
  if (Table)
    tile::load_rows<D, Threads, Parts>(base + S::r, a.table.source(0, h), lag0 + a.zero_row,
                                       S::rows, a.rows);
  float dr[Table ? Slabs : 1][D / 8][4] = {}, db[Slabs][2] = {}, bias[Slabs][2];
#pragma unroll
  for (int sl = 0; sl < Slabs; ++sl)
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int at = lw + sl * 16 + 8 * half + gr - a.first;
      bias[sl][half] = at >= 0 && at < a.width ? a.bias_of(h)[at] : 0.f;
    }
  const uint32_t eight = Rows<D>::eight(lane), sixteen = Rows<D>::sixteen(lane);
  const uint32_t mine = base + warp * Slabs * 16 * P + sixteen;
  const tile::RowShear shear(lane, 0, 1);
  const int units = a.batch * a.pieces;
  const int unit_end = units * (segment + 1) / a.segments;
#pragma unroll 1
  for (int unit = units * segment / a.segments; unit < unit_end; ++unit) {
    const int b = unit / a.pieces, piece = unit % a.pieces, bh = b * a.heads + h;
    const int tile0 = all_tiles * piece / a.pieces, tile1 = all_tiles * (piece + 1) / a.pieces;
    auto load_tile = [&](int i0, int half) {
      tile::load_rows<D, Threads, Parts>(base + S::q + half * S::tile, a.q.source(b, h), i0, BQ,
                                         a.m);
      tile::load_rows<D, Threads, Parts>(base + S::g + half * S::tile, a.g.source(b, h), i0, BQ,
                                         a.m);
      if (Apart)
        tile::load_rows<D, Threads, Parts>(base + S::p + half * S::tile, a.p.source(b, h), i0, BQ,
                                           a.m);
      const uint32_t line = base + S::stats + half * 2 * BQ * 4;
      tile::load_line<Threads>(line, a.sums + int64_t(bh) * a.m, i0, BQ, a.m);
      tile::load_line<Threads>(line + BQ * 4, a.delta + int64_t(bh) * a.m, i0, BQ, a.m);
    };
    auto load_keys = [&](int j, int count) {
      tile::load_ring<D, S::ring, Threads, Parts>(base + S::k, a.k.source(b, kh), j, count, 0, a.n);
      tile::load_ring<D, S::ring, Threads, Parts>(base + S::v, a.v.source(b, kh), j, count, 0, a.n);
    };
    if (tile1 > tile0) {
      const int i0 = first + tile0 * BQ;
      load_tile(i0, 0);
      load_keys(lag0 + i0 + a.shift, S::rows + BQ);
    }
    ptx::commit();
    ptx::wait<0>();
    __syncthreads();
#pragma unroll 1
    for (int step = tile0; step < tile1; ++step) {
      const int i0 = first + step * BQ, now = (step - tile0) & 1;
      if (step + 1 < tile1) {
        load_tile(i0 + BQ, now ^ 1);
        load_keys(lag0 + i0 + BQ + a.shift + S::rows, BQ);
      }
      ptx::commit();
      const uint32_t tq = base + S::q + now * S::tile, tg = base + S::g + now * S::tile;
      const uint32_t tp = base + S::p + now * S::tile;
      const float* const st = stats + now * 2 * BQ + 2 * t;
      const int low = lw + i0 + a.shift, row = low + lane % 16;  // the key of strip row 0
      const uint32_t turn = ((lane / 16) ^ Rows<D>::swizzle(row)) << 4;
      // use(number, slab, tile, element) for the product of the rows of a ring with those of a
      // tile, sheared.
      auto sheared = [&](uint32_t ring, uint32_t right, auto use) {
#pragma unroll
        for (int n = 0; n < BQ / 8; n += 2) {
          float w[2][Slabs + 1][4] = {};
#pragma unroll
          for (int x = 0; x < D / 32; ++x) {
            tile::Fragment<Parts> f[2];
#pragma unroll
            for (int e = 0; e < 2; ++e)
              tile::load(f[e], (right + eight + (n + e) * 8 * P) ^ (x << 6), BQ * P);
#pragma unroll
            for (int y = 0; y < 2; ++y)
#pragma unroll
              for (int m = 0; m <= Slabs; ++m) {
                tile::Fragment<Parts> left;
                tile::load(left,
                           base + ring + ((row + (n + 2 * m) * 8) & (S::ring - 1)) * P +
                               (turn ^ ((2 * x + y) << 5)),
                           S::ring * P);
                tile::multiply(w[0][m], left, f[0], y);
                tile::multiply(w[1][m], left, f[1], y);
              }
          }
#pragma unroll
          for (int e = 0; e < 2; ++e)
#pragma unroll
            for (int o = 0; o < 2 * Slabs; ++o) {
              float d0, d1;
              shear.octet(d0, d1, w[e], o + e);
              use(d0, o / 2, n + e, 2 * (o & 1));
              use(d1, o / 2, n + e, 2 * (o & 1) + 1);
            }
        }
      };
      float s[Slabs][BQ / 8][4];
      sheared(S::k, tq, [&](float x, int sl, int n, int e) { s[sl][n][e] = x; });
      if constexpr (Table) {
#pragma unroll
        for (int x = 0; x < D / 32; ++x) {
          tile::Fragment<Parts> l[Slabs][2];
#pragma unroll
          for (int sl = 0; sl < Slabs; ++sl)
#pragma unroll
            for (int y = 0; y < 2; ++y)
              tile::load(l[sl][y], (mine + S::r + sl * 16 * P) ^ ((2 * x + y) << 5), S::rows * P);
#pragma unroll
          for (int n = 0; n < BQ / 8; ++n) {
            tile::Fragment<Parts> f;
            tile::load(f, (tp + eight + n * 8 * P) ^ (x << 6), BQ * P);
#pragma unroll
            for (int sl = 0; sl < Slabs; ++sl) {
              tile::multiply(s[sl][n], l[sl][0], f, 0);
              tile::multiply(s[sl][n], l[sl][1], f, 1);
            }
          }
        }
      }
#pragma unroll
      for (int n = 0; n < BQ / 8; ++n) {
        const float2 sum = *reinterpret_cast<const float2*>(st + n * 8);
#pragma unroll
        for (int sl = 0; sl < Slabs; ++sl)
#pragma unroll
          for (int e = 0; e < 4; ++e)
            s[sl][n][e] =
                ptx::ex2((s[sl][n][e] + bias[sl][e >> 1]) * a.scale2 - (e & 1 ? sum.y : sum.x));
      }
      if (low < 0 || low + 16 * Slabs + BQ - 1 > a.n || i0 + BQ > a.m || a.block || a.padding) {
#pragma unroll
        for (int c = 0; c < BQ / 4; ++c) {
          const int column = 8 * (c / 2) + 2 * t + c % 2;
          const int from = a.block ? a.first_key(i0 + column + a.shift) : 0;
          const bool there = i0 + column < a.m;
#pragma unroll
          for (int r = 0; r < 2 * Slabs; ++r) {
            const int j = low + gr + 8 * r + column;
            if (!there || j < from || a.hidden(b, j)) s[r / 2][c / 2][2 * (r % 2) + c % 2] = 0;
          }
        }
      }
      // From weights to the scores' gradients.
      if constexpr (Drop) {
        const RandomKey key = key_now(a.key);
        uint32_t bits[Slabs];
#pragma unroll
        for (int sl = 0; sl < Slabs; ++sl)
          bits[sl] = kept_of_keys<BQ / 8>(a, key, int64_t(bh) * a.m, i0, low + 16 * sl, 1);
        sheared(S::v, tg, [&](float x, int sl, int n, int e) {
          s[sl][n][e] *=
              (bits[sl] >> (4 * n + e) & 1 ? x * a.keep_scale : 0) + st[BQ + n * 8 + e % 2];
        });
      } else {
        sheared(S::v, tg,
                [&](float x, int sl, int n, int e) { s[sl][n][e] *= x + st[BQ + n * 8 + e % 2]; });
      }
#pragma unroll
      for (int sl = 0; sl < Slabs; ++sl)
#pragma unroll
        for (int n = 0; n < BQ / 8; ++n)
#pragma unroll
          for (int e = 0; e < 4; ++e) db[sl][e >> 1] += s[sl][n][e];
      if constexpr (Table) {
#pragma unroll
        for (int x = 0; x < BQ / 16; ++x) {
          tile::Fragment<Parts> l[Slabs];
#pragma unroll
          for (int sl = 0; sl < Slabs; ++sl) tile::pack(l[sl], s[sl][2 * x], s[sl][2 * x + 1]);
#pragma unroll
          for (int n = 0; n < D / 16; ++n) {
            tile::Fragment<Parts> f;
            tile::load_trans(f, (tp + sixteen + x * 16 * P) ^ (n << 5), BQ * P);
#pragma unroll
            for (int sl = 0; sl < Slabs; ++sl) {
              tile::multiply(dr[sl][2 * n], l[sl], f, 0);
              tile::multiply(dr[sl][2 * n + 1], l[sl], f, 1);
            }
          }
        }
      }
      ptx::wait<0>();
      __syncthreads();  // the next tile is there, and this one's place is free
    }
  }
#pragma unroll
  for (int sl = 0; sl < Slabs; ++sl)
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int lag = lw + sl * 16 + 8 * half + gr, row = lag + a.zero_row, at = lag - a.first;
      const int64_t part = int64_t(segment) * a.heads + h;
      float sum = db[sl][half];
      sum += __shfl_xor_sync(0xffffffffu, sum, 1);
      sum += __shfl_xor_sync(0xffffffffu, sum, 2);
      if (t == 0 && a.dbias && at >= 0 && at < a.width) a.dbias[part * a.width + at] = sum;
      if constexpr (Table)
        if (a.dtable && row >= 0 && row < a.rows) {
#pragma unroll
          for (int x = 0; x < D / 8; ++x)
            if (x < a.table.chunks)
              *reinterpret_cast<float2*>(a.dtable + (part * a.rows + row) * (8 * a.table.chunks) +
                                         x * 8 + 2 * t) = {dr[sl][x][2 * half] * a.scale,
                                                           dr[sl][x][2 * half + 1] * a.scale};
        }
    }
}

template <int D, int Parts, int Slabs, int Warps, int PerSM, bool Table, bool Apart, bool Drop>
void launch_lags(const AttentionArgs& a, int device) {
  using S = LagsShape<D, Parts, Slabs, Warps, Table, Apart>;
  launch_with_shared(
      "attention", device, attention_lags<D, Parts, Slabs, Warps, PerSM, Table, Apart, Drop>,
      dim3(unsigned(a.heads * a.segments), unsigned(ceil_div(a.high_lag + 1 - a.low_lag, S::rows))),
      dim3(Warps * 32), S::bytes, a);
}

template <int D, int Parts, int Slabs, int Warps, int PerSM, bool Drop>
void choose_lags(const AttentionArgs& a, int device) {
  if (!a.table.data)
    launch_lags<D, Parts, Slabs, Warps, PerSM, false, false, Drop>(a, device);
  else if (a.p.data == a.q.data)
    launch_lags<D, Parts, Slabs, Warps, PerSM, true, false, Drop>(a, device);
  else
    launch_lags<D, Parts, Slabs, Warps, PerSM, true, true, Drop>(a, device);
}

}  // namespace

void launch_attention_lags(const AttentionArgs& a, int d, int device) {
  const auto choose = [&](auto drop) {
    constexpr bool Drop = decltype(drop)::value;
    if (a.parts > 1)
      choose_lags<64, 3, 1, 4, 1, Drop>(a, device);
    else if (d <= 32)
      choose_lags<32, 1, 2, 4, 2, Drop>(a, device);
    else if (d <= 64)
      choose_lags<64, 1, 2, 4, 2, Drop>(a, device);
    else
      choose_lags<128, 1, 1, 8, 1, Drop>(a, device);
  };
  a.drop_below > 0 ? choose(std::true_type()) : choose(std::false_type());
}

}  // namespace stretto::cuda
