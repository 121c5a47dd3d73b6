// Fused attention, backward: gradients of the rows of relative positions and of the lags' bias.
//
// A block owns 64 to 192 lags of a head, a warp 16 to 48 of them, and walks the queries that see a
// key that far away, 32 at a time. All is turned over, lags × queries: what queries make with keys
// and values comes as keys × queries, of which column c moves up by c rows, so that dSᵀ is at once
// the left operand of dR = scale · dSᵀ P, and the bias' gradient the sum of a row; rows of values
// have Pᵀ g. Keys and values lie in rings, as each step needs 32 new ones.
//
// The batch, and each entry's queries, are cut into as many segments as fill the GPU; their parts
// are added in order by a second launch.
// Tested against the composed form in f64.
#include "cuda/attention/attention.cuh"

namespace stretto::cuda {
namespace {

using tile::Rows;

template <int D, int Parts, int Slabs, int Warps, Positions Of>
struct LagsShape : AttentionShape<D, Parts, Warps, Of> {
  using Base = AttentionShape<D, Parts, Warps, Of>;
  using Base::Apart, Base::Every, Base::Table, Base::row;
  static constexpr int BQ = Every && (D > 64 || Parts > 1) ? 16 : 32;
  static constexpr int rows = 16 * Slabs * Warps, area = tile::ring_of(rows),
                       ring = tile::ring_of(rows + 2 * BQ);
  static constexpr int tile = BQ * row;
  static constexpr int r = 0, values = r + (Table ? rows * row : 0);
  static constexpr int q = values + (Every ? rows * row : 0), g = q + 2 * tile;
  static constexpr int p = Apart ? g + 2 * tile : q, k = (Apart ? p : g) + 2 * tile;
  static constexpr int v = k + ring * row, stats = v + ring * row, bias = stats + 4 * BQ * 4;
  static constexpr int bytes = bias + rows * 4;
};

/// dtable and dvalues [segments, H, R, D] and dbias [segments, H, W] from q, k, v, g, sums and
/// delta [B, H, M]
template <int D, int Parts, int Slabs, int Warps, int PerSM, bool Drop, Positions Of>
__global__ void __launch_bounds__(Warps * 32, PerSM)
    attention_lags(const __grid_constant__ AttentionArgs a) {
  using S = LagsShape<D, Parts, Slabs, Warps, Of>;
  constexpr bool Table = S::Table, Apart = S::Apart, Every = S::Every;
  constexpr int BQ = S::BQ, Threads = Warps * 32, P = 2 * D, N = BQ / 8;
  using Operand = tile::Fragment<Parts>;
  extern __shared__ __align__(256) char smem[];
  const uint32_t base = ptx::shared_address(smem);
  const float* const stats =
      reinterpret_cast<const float*>(smem + S::stats);  // [2][sums, delta][BQ]
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, gr = lane / 4, t = lane % 4;
  const int h = blockIdx.x % a.sizes.heads, segment = blockIdx.x / a.sizes.heads;
  const int lag0 = a.grid.high_lag + 1 - int(blockIdx.y + 1) * S::rows,
            lw = lag0 + warp * Slabs * 16;
  const int first = max(0, -(lag0 + S::rows - 1) - a.sizes.shift);
  const int end = min(a.sizes.m, a.sizes.n - lag0 - a.sizes.shift);
  const int all_tiles = end > first ? (end - first + BQ - 1) / BQ : 0;
  if constexpr (Table) {
    tile::load_rows<D, Threads, S::rows, Parts, S::area>(base + S::r, a.table.rows.source(0, h),
                                                         lag0 + a.table.zero_row, a.table.count);
  }
  if constexpr (Every) {
    tile::load_rows<D, Threads, S::rows, Parts, S::area>(
        base + S::values, a.value_table.rows.source(0, h), lag0 + a.value_table.zero_row,
        a.value_table.count);
  }
  float dr[Table ? Slabs : 1][D / 8][4] = {}, db[Slabs][2] = {};
  float dvalues[Slabs][D / 8][4] = {};
  const bool biased = a.lag_bias.width > 0;
  if (biased)
    tile::load_line<Threads, S::rows, S::area>(base + S::bias, a.lag_bias.of(h),
                                               lag0 - a.lag_bias.first, a.lag_bias.width);
  ptx::commit();
  ptx::wait<0>();
  __syncthreads();
  const uint32_t sixteen = Rows<D>::sixteen(lane), turned = Rows<D>::turned(lane);
  auto own = [&](int area, int sl, int x) {
    Operand f;
    tile::load(f, (base + area + (warp * Slabs + sl) * 16 * P + sixteen) ^ (x << 5), S::area * P);
    return f;
  };
  // Whether the queries' fragments serve both products, and the table's stay in registers. Where
  // sums take most of these, products are loops.
  constexpr bool joined = Table && !Apart && Parts == 1, kept = Table && D <= 32;
  constexpr int unrolled = Parts > 1 || Slabs > 2 ? 1 : D / 16;
  Operand rows[kept ? Slabs : 1][D / 16];
  if constexpr (kept) {
#pragma unroll
    for (int sl = 0; sl < Slabs; ++sl)
#pragma unroll
      for (int x = 0; x < D / 16; ++x) rows[sl][x] = own(S::r, sl, x);
  }
  auto of_rows = [&](int sl, int x) {
    if constexpr (kept)
      return rows[sl][x];
    else
      return own(S::r, sl, x);
  };
  const tile::RowShear shear(lane, 0, 1);
  const int parts = a.sizes.batch * a.grid.pieces,
            end_part = parts * (segment + 1) / a.grid.segments;
#pragma unroll 1
  for (int part = parts * segment / a.grid.segments; part < end_part; ++part) {
    const int piece = part % a.grid.pieces, unit = part / a.grid.pieces * a.sizes.heads + h;
    const int tile0 = all_tiles * piece / a.grid.pieces,
              tile1 = all_tiles * (piece + 1) / a.grid.pieces;
    auto load_keys = [&]<int Count>(std::integral_constant<int, Count>, int j) {
      const int to = j & (S::ring - 1);
      const auto [b, head, kh] = a.place(unit);
      tile::load_rows<D, Threads, Count, Parts, S::ring>(base + S::k, a.operands.k.source(b, kh), j,
                                                         a.sizes.n, to);
      tile::load_rows<D, Threads, Count, Parts, S::ring>(base + S::v, a.operands.v.source(b, kh), j,
                                                         a.sizes.n, to);
    };
    if (tile1 > tile0) {
      const int i0 = first + tile0 * BQ;
      load_queries<S>(a, base, unit, i0, tile0 & 1);
      load_keys(std::integral_constant<int, S::rows + BQ>(), lag0 + i0 + a.sizes.shift);
    }
    ptx::commit();
    ptx::wait<0>();
    __syncthreads();
#pragma unroll 1
    for (int step = tile0; step < tile1; ++step) {
      const int i0 = first + step * BQ, now = step & 1;
      if (step + 1 < tile1) {
        load_queries<S>(a, base, unit, i0 + BQ, now ^ 1);
        load_keys(std::integral_constant<int, BQ>(), lag0 + i0 + BQ + a.sizes.shift + S::rows);
      }
      ptx::commit();
      const int low = lw + i0 + a.sizes.shift;  // the key of strip row 0
      if (low + 16 * Slabs + BQ - 2 >= 0 && low < a.sizes.n) {
        const uint32_t tq = base + S::q + now * S::tile, tg = base + S::g + now * S::tile;
        const uint32_t tp = base + S::p + now * S::tile;
        const float* const st = stats + now * 2 * BQ + 2 * t;
        const auto none = [](int) { return 0.f; };
        const auto nothing = [](int, const auto&) {};
        float s[Slabs][N][4] = {};
        const auto meet_rows = [&] {
          if constexpr (Table && !joined) {
            if (!Every || a.table.count > 0)
              tile::multiply_turned<D, BQ, Parts, kept ? D / 16 : unrolled, 0, D / 16, (Parts > 1)>(
                  s, of_rows, tp + turned);
          }
        };
        const auto add_bias = [&] {
          if (!biased) return;
          const float* const bias =
              reinterpret_cast<const float*>(smem + S::bias) + tile::fresh(warp * Slabs * 16 + gr);
#pragma unroll
          for (int sl = 0; sl < Slabs; ++sl)
#pragma unroll
            for (int half = 0; half < 2; ++half) {
              const float x = bias[16 * sl + 8 * half];
#pragma unroll
              for (int n = 0; n < N; ++n) {
                s[sl][n][2 * half] += x;
                s[sl][n][2 * half + 1] += x;
              }
            }
        };
        if constexpr (Parts > 1) {
          meet_rows();
          add_bias();
        }
        tile::turned_strip<D, S::ring, BQ, Parts, Slabs, N, false, unrolled>(
            base + S::k, low, tq + turned, shear, none,
            [&](int x, const auto& f) {
              if constexpr (joined) {
#pragma unroll
                for (int sl = 0; sl < Slabs; ++sl) {
                  const Operand left = of_rows(sl, x);
#pragma unroll
                  for (int n = 0; n < N; ++n) tile::multiply(s[sl][n], left, f[n / 2], n % 2);
                }
              }
            },
            [&](float x, int sl, int n, int e) { s[sl][n][e] += x; });
        if constexpr (Parts == 1) meet_rows();
        if constexpr (Every) a.add_dense<Parts, true, 1>(s, a.place(unit).b, h, i0, low);
        if constexpr (Parts == 1) add_bias();
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
        if (low < 0 || low + 16 * Slabs + BQ - 1 > a.sizes.n || i0 + BQ > a.sizes.m ||
            a.mask.block || a.mask.padding) {
          const int b = a.place(unit).b;
#pragma unroll
          for (int c = 0; c < BQ / 4; ++c) {
            const int column = 8 * (c / 2) + 2 * t + c % 2;
            const int from = a.mask.block ? a.first_key(i0 + column + a.sizes.shift) : 0;
            const bool there = i0 + column < a.sizes.m;
#pragma unroll
            for (int r = 0; r < 2 * Slabs; ++r) {
              const int j = low + gr + 8 * r + column;
              if (!there || j < from || a.hidden(b, j)) s[r / 2][c / 2][2 * (r % 2) + c % 2] = 0;
            }
          }
        }
        uint32_t bits[Slabs];
        if constexpr (Drop) {
          const RandomKey key = key_now(a.dropout.key);
#pragma unroll
          for (int sl = 0; sl < Slabs; ++sl)
            bits[sl] =
                Every && a.dropout.below == 0
                    ? ~0u
                    : kept_of_keys<N>(a, key, int64_t(unit) * a.sizes.m, i0, low + 16 * sl, 1);
        }
        float of_values[Slabs][N][4] = {};  // what weights' gradients have of rows of values
        if constexpr (Every) {
          if (a.value_table.count > 0) {
#pragma unroll
            for (int y = 0; y < N / 2; ++y) {
              Operand l[Slabs];
#pragma unroll
              for (int sl = 0; sl < Slabs; ++sl) {
                tile::pack(l[sl], s[sl][2 * y], s[sl][2 * y + 1]);
                if constexpr (Drop) tile::keep_pairs(l[sl], bits[sl] >> (8 * y));
              }
              tile::multiply<D, BQ, Parts>(dvalues, l, tg + sixteen + y * 16 * P);
            }
            tile::multiply_turned<D, BQ, Parts>(
                of_values, [&](int sl, int x) { return own(S::values, sl, x); }, tg + turned);
          }
        }
        // From weights to the scores' gradients.
        float2 delta;  // of a tile's two queries
        tile::turned_strip<D, S::ring, BQ, Parts, Slabs, N, false, unrolled>(
            base + S::v, low, tg + turned, shear, none, nothing,
            [&](float x, int sl, int n, int e) {
              if (sl == 0 && e == 0) delta = *reinterpret_cast<const float2*>(st + BQ + n * 8);
              if constexpr (Every) x += of_values[sl][n][e];
              if constexpr (Drop) x = bits[sl] >> (4 * n + e) & 1 ? x * a.dropout.keep_scale : 0;
              s[sl][n][e] *= x + (e % 2 ? delta.y : delta.x);
            });
#pragma unroll
        for (int sl = 0; sl < Slabs; ++sl)
#pragma unroll
          for (int n = 0; n < N; ++n)
#pragma unroll
            for (int e = 0; e < 4; ++e) db[sl][e >> 1] += s[sl][n][e];
        if constexpr (Table) {
          if (!Every || a.table.count > 0) {
#pragma unroll
            for (int x = 0; x < N / 2; ++x) {
              Operand l[Slabs];
#pragma unroll
              for (int sl = 0; sl < Slabs; ++sl) tile::pack(l[sl], s[sl][2 * x], s[sl][2 * x + 1]);
              tile::multiply<D, BQ, Parts>(dr, l, tp + sixteen + x * 16 * P);
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
      const int lag = lw + sl * 16 + 8 * half + gr, row = lag + a.table.zero_row,
                at = lag - a.lag_bias.first;
      const int64_t part = int64_t(segment) * a.sizes.heads + h;
      float sum = db[sl][half];
      sum += __shfl_xor_sync(0xffffffffu, sum, 1);
      sum += __shfl_xor_sync(0xffffffffu, sum, 2);
      if (t == 0 && a.gradients.lag_bias && at >= 0 && at < a.lag_bias.width)
        a.gradients.lag_bias[part * a.lag_bias.width + at] = sum;
      // A row of `count` of them, of 8 · chunks numbers.
      auto put_part = [&](float* to, int r, int count, int chunks, const float(&x)[D / 8][4],
                          float factor) {
        if (!to || r < 0 || r >= count) return;
#pragma unroll
        for (int c = 0; c < D / 8; ++c)
          if (c < chunks)
            *reinterpret_cast<float2*>(to + (part * count + r) * (8 * chunks) + c * 8 + 2 * t) = {
                x[c][2 * half] * factor, x[c][2 * half + 1] * factor};
      };
      if constexpr (Table)
        put_part(a.gradients.table, row, a.table.count, a.table.rows.chunks, dr[sl], a.scale.score);
      if constexpr (Every)
        put_part(a.gradients.value_table, lag + a.value_table.zero_row, a.value_table.count,
                 a.value_table.rows.chunks, dvalues[sl], a.dropout.keep_scale);
    }
}

template <int D, int Parts, int Slabs, int Warps, int PerSM, bool Drop, Positions Of>
void launch_lags(const AttentionArgs& a, int device) {
  using S = LagsShape<D, Parts, Slabs, Warps, Of>;
  launch_with_shared("attention", device, attention_lags<D, Parts, Slabs, Warps, PerSM, Drop, Of>,
                     dim3(unsigned(a.sizes.heads * a.grid.segments),
                          unsigned(ceil_div(a.grid.high_lag + 1 - a.grid.low_lag, S::rows))),
                     dim3(Warps * 32), S::bytes, a);
}

}  // namespace

void launch_attention_lags(const AttentionArgs& a, int d, int device) {
  const auto choose = [&]<Positions Of, bool Drop>(At<Of>, std::bool_constant<Drop>) {
    if (a.sizes.parts > 1)
      launch_lags<64, 3, 1, 4, 1, Drop, Of>(a, device);
    else if constexpr (Of == Positions::every)
      d <= 64 ? launch_lags<64, 1, 1, 4, 2, Drop, Of>(a, device)
              : launch_lags<128, 1, 1, 4, 1, Drop, Of>(a, device);
    else if (d <= 32)
      launch_lags<32, 1, 2, 4, 2, Drop, Of>(a, device);
    else if (d <= 64)
      launch_lags<64, 1, Drop ? 2 : 3, 4, 2, Drop, Of>(a, device);
    else
      launch_lags<128, 1, 1, 8, 1, Drop, Of>(a, device);
  };
  with_positions(a, [&]<Positions Of>(At<Of> of) {
    if constexpr (Of == Positions::every)
      choose(of, std::true_type());
    else
      a.dropout.below > 0 ? choose(of, std::true_type()) : choose(of, std::false_type());
  });
}

}  // namespace stretto::cuda
