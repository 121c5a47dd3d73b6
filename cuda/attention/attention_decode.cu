// Fused attention of few queries (docs: Flash-Decoding, Dao et al. 2023).
//
// The queries of all heads of a key head, up to 16 of them, are the rows of one tile of a product;
// a block has some of the keys, of which its warps take turns. Keys, values and rows of the table
// go from memory to registers, where they are operands as they come: what a lane reads at once, 16
// bytes, are neighbours in a row, and the columns of the products are permuted accordingly. Each
// warp has sums of its own; those of a block meet in shared memory, those of blocks in a second
// kernel, in the order of the keys.
//
// What is taken off exponents is rounded before, so that large scores lose only what they share.
// Tested against the composed form in f64.
#include "cuda/attention/attention.cuh"
#include "cuda/attention/attention_decode.h"

namespace stretto::cuda {
namespace {

constexpr int most_queries = 8, tile_rows = 16, warps = 4;
constexpr uint32_t all_lanes = 0xffffffffu;

/// How keys are split, and what blocks leave: of each tile of rows and each split the sums of
/// values [2, D / 8, 8, 4, 2], as registers have them, and for each row the exponent that was taken
/// off and the sum of weights.
struct Splits {
  float2 *sums, *marks;
  int begin, per_split, count, row_tiles, clip;
};

/// Where row r of a tile of the queries of a key head is.
struct Query {
  int h, i;
  bool there;
  __device__ Query(const AttentionArgs& a, int kh, int r)
      : h(kh * a.sizes.per_group + r / a.sizes.m),
        i(r % a.sizes.m),
        there(r < a.sizes.per_group * a.sizes.m) {}
};

/// 16 bytes of a row, from column `at` on; zeros where there is nothing.
template <class T>
__device__ inline uint4 piece(const HeadRows<const void>& rows, int b, int h, int i, int at,
                              bool there) {
  if (!there || at >= rows.chunks * 8) return {0, 0, 0, 0};
  return *reinterpret_cast<const uint4*>(rows.at<const T>(b, h, i) + at);
}

/// Four f32 as the parts of two pairs, which become numbers `place` and `place` + Step of a
/// fragment.
template <int Step, int Parts>
__device__ inline void cut(tile::Fragment<Parts>& f, int place, const uint4& x) {
  float v[4] = {__uint_as_float(x.x), __uint_as_float(x.y), __uint_as_float(x.z),
                __uint_as_float(x.w)};
#pragma unroll
  for (int part = 0; part < Parts; ++part) {
    f.r[part][place] = tile::pack_pair(v[0], v[1]);
    f.r[part][place + Step] = tile::pack_pair(v[2], v[3]);
  }
}

/// What a type's pieces are: V numbers; steps of 16 of a product's sum in a piece of each of four
/// lanes; parts of a number.
template <class T>
struct Pieces {
  static constexpr int V = pack_size<T>, steps = V / 4, parts = sizeof(T) == 2 ? 1 : 3;
  using Fragment = tile::Fragment<parts>;

  /// Row `half` of left operands.
  __device__ static void left(Fragment* f, int half, const uint4& x) {
    if constexpr (parts == 1) {
      f[0].r[0][half] = x.x, f[0].r[0][half + 2] = x.y;
      f[1].r[0][half] = x.z, f[1].r[0][half + 2] = x.w;
    } else {
      cut<2>(f[0], half, x);
    }
  }
  /// Right operands of the steps, one after the other.
  __device__ static void right(Fragment& f, const uint4& x) {
    if constexpr (parts == 1)
      f.r[0][0] = x.x, f.r[0][1] = x.y, f.r[0][2] = x.z, f.r[0][3] = x.w;
    else
      cut<1>(f, 0, x);
  }
  /// A right operand of column e of the pieces of four rows that are summed over.
  __device__ static void column(Fragment& f, const uint4 (&x)[4], int e) {
#pragma unroll
    for (int pair = 0; pair < 2; ++pair) {
      const uint4 &a = x[2 * pair], &b = x[2 * pair + 1];
      if constexpr (parts == 1) {
        f.r[0][pair] = __byte_perm(word(a, e / 2), word(b, e / 2), e % 2 ? 0x7632 : 0x5410);
      } else {
        float low = __uint_as_float(word(a, e)), high = __uint_as_float(word(b, e));
#pragma unroll
        for (int part = 0; part < parts; ++part) f.r[part][pair] = tile::pack_pair(low, high);
      }
    }
  }
  __device__ static uint32_t word(const uint4& x, int i) {
    return i == 0 ? x.x : i == 1 ? x.y : i == 2 ? x.z : x.w;
  }
};

/// Moves what a row of a strip holds `ahead` columns back, 0 … 7.
struct Shift {
  int from[2];
  bool odd, next[2];
  __device__ Shift(int lane, int ahead) : odd(ahead & 1) {
    const int t = lane % 4, pairs = ahead / 2;
    from[0] = (lane & ~3) | ((t + pairs) & 3);
    from[1] = (lane & ~3) | ((t + pairs + odd) & 3);
    next[0] = t < pairs;
    next[1] = t < pairs + odd;
  }
  /// Two neighbours of a tile from it and the next one.
  __device__ float2 pair(float a0, float a1, float b0, float b1) const {
    const float x = odd ? (next[0] ? b1 : a1) : (next[0] ? b0 : a0);
    const float y = odd ? (next[1] ? b0 : a0) : (next[1] ? b1 : a1);
    return {tile::lane_of(x, from[0]), tile::lane_of(y, from[1])};
  }
};

/// grid: [B G row_tiles, splits]; sums and marks from q [B, H, M, D], k [B, G, N, D], v [B, G, N,
/// Dv]
template <class T, int D, bool Table>
__global__ void __launch_bounds__(warps * 32, 2)
    attention_decode_splits(const __grid_constant__ AttentionArgs a,
                            const __grid_constant__ Splits s) {
  using P = Pieces<T>;
  using Fragment = typename P::Fragment;
  constexpr int V = P::V, pieces = D / (4 * V), wide = D / (8 * V), steps = D / 16, tiles = D / 8;
  constexpr int BK = D * int(sizeof(T)) <= 128 ? 32 : 16;
  __shared__ float4 values[warps][tiles][32];
  __shared__ float2 marks[warps][tile_rows];
  __shared__ uint4 positions[Table ? steps : 1][P::parts][32];  // left operands of all warps
  const int warp = int(threadIdx.x) / 32, lane = int(threadIdx.x) % 32, g = lane / 4, t = lane % 4;
  const int unit = int(blockIdx.x) / s.row_tiles, row0 = int(blockIdx.x) % s.row_tiles * tile_rows;
  const int groups = a.sizes.heads / a.sizes.per_group, b = unit / groups, kh = unit % groups;
  const int start = s.begin + int(blockIdx.y) * s.per_split,
            end = min(a.sizes.n, start + s.per_split);
  const Query query[2] = {{a, kh, row0 + g}, {a, kh, row0 + g + 8}};
  int low[2], high[2];
  Fragment fq[steps];
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const Query& x = query[half];
    const int position = x.i + a.sizes.shift;
    low[half] = a.first_key(position);
    high[half] = min(end, a.end_key(position));
#pragma unroll
    for (int c = 0; c < pieces; ++c)
      P::left(&fq[c * P::steps], half,
              piece<T>(a.operands.q, b, x.h, x.i, 4 * V * c + V * t, x.there));
  }
  if constexpr (Table) {
    if (warp == 0) {
#pragma unroll
      for (int c = 0; c < pieces; ++c) {
        Fragment f[P::steps];
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          const Query& x = query[half];
          P::left(f, half, piece<T>(a.operands.p, b, x.h, x.i, 4 * V * c + V * t, x.there));
        }
#pragma unroll
        for (int y = 0; y < P::steps; ++y)
#pragma unroll
          for (int part = 0; part < P::parts; ++part) {
            const uint32_t(&r)[4] = f[y].r[part];
            positions[c * P::steps + y][part][lane] = {r[0], r[1], r[2], r[3]};
          }
      }
    }
    __syncthreads();
  }
  const Shift shift[2] = {{lane, a.sizes.m - 1 - query[0].i}, {lane, a.sizes.m - 1 - query[1].i}};
  // Heads of these rows that have tables of their own.
  const int last_row = min(row0 + tile_rows, a.sizes.per_group * a.sizes.m) - 1;
  const int h0 = a.table.rows.head == 0 ? 0 : kh * a.sizes.per_group + row0 / a.sizes.m;
  const int h1 = a.table.rows.head == 0 ? 0 : kh * a.sizes.per_group + last_row / a.sizes.m;
  float acc[tiles][4] = {}, at[2] = {-1e30f, -1e30f}, total[2] = {};

#pragma unroll 1
  for (int j0 = start + warp * BK; j0 < end; j0 += warps * BK) {
    uint4 keys[BK / 8][pieces], rows[BK / 16][wide][4];
#pragma unroll
    for (int n = 0; n < BK / 8; ++n)
#pragma unroll
      for (int c = 0; c < pieces; ++c) {
        const int j = j0 + 8 * n + g;
        keys[n][c] = piece<T>(a.operands.k, b, kh, j, 4 * V * c + V * t, j < end);
      }
    auto load_values = [&] {
#pragma unroll
      for (int x = 0; x < BK / 16; ++x)
#pragma unroll
        for (int c = 0; c < wide; ++c)
#pragma unroll
          for (int r = 0; r < 4; ++r) {
            const int j = j0 + 16 * x + 2 * t + r % 2 + 8 * (r / 2);
            rows[x][c][r] = piece<T>(a.operands.v, b, kh, j, 8 * V * c + V * g, j < end);
          }
    };
    if (!Table) load_values();
    float w[BK / 8][4] = {};
#pragma unroll
    for (int n = 0; n < BK / 8; ++n)
#pragma unroll
      for (int c = 0; c < pieces; ++c) {
        Fragment f;
        P::right(f, keys[n][c]);
#pragma unroll
        for (int y = 0; y < P::steps; ++y) tile::multiply(w[n], fq[c * P::steps + y], f, y);
      }
    if constexpr (Table) {
#pragma unroll 1
      for (int h = h0; h <= h1; ++h) {
        // Column c of the strip is for the lag of key j0 + c to the last query.
        auto strip = [&](float(&d)[4], int n) {
          d[0] = d[1] = d[2] = d[3] = 0;
          int mine = lane;
          asm volatile("" : "+r"(mine));  // what is read here is not kept: there are too many
          const int j = j0 + 8 * n + g;
          int row = j - (a.sizes.n - 1) + a.table.zero_row;
          if (s.clip) row = min(max(row, 0), a.table.count - 1);
          const bool there = j < end + a.sizes.m - 1 && row >= 0 && row < a.table.count;
#pragma unroll(P::parts == 1 ? pieces : 1)
          for (int c = 0; c < pieces; ++c) {
            Fragment f;
            P::right(f, piece<T>(a.table.rows, 0, h, row, 4 * V * c + V * t, there));
#pragma unroll
            for (int y = 0; y < P::steps; ++y) {
              Fragment left;
#pragma unroll
              for (int part = 0; part < P::parts; ++part) {
                const uint4 r = positions[c * P::steps + y][part][mine];
                left.r[part][0] = r.x, left.r[part][1] = r.y;
                left.r[part][2] = r.z, left.r[part][3] = r.w;
              }
              tile::multiply(d, left, f, y);
            }
          }
        };
        float now[4], next[4] = {};
        strip(now, 0);
#pragma unroll
        for (int n = 0; n < BK / 8; ++n) {
          if (n + 1 < BK / 8 || a.sizes.m > 1) strip(next, n + 1);
#pragma unroll
          for (int half = 0; half < 2; ++half) {
            const float2 x = shift[half].pair(now[2 * half], now[2 * half + 1], next[2 * half],
                                              next[2 * half + 1]);
            if (a.table.rows.head != 0 && h != query[half].h) continue;
            w[n][2 * half] += x.x;
            w[n][2 * half + 1] += x.y;
          }
#pragma unroll
          for (int e = 0; e < 4; ++e) now[e] = next[e];
        }
      }
    }
    if (Table) load_values();  // registers do not suffice for both
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int position = query[half].i + a.sizes.shift;
      float most = -INFINITY;
#pragma unroll
      for (int x = 0; x < BK / 4; ++x) {
        const int j = j0 + 8 * (x / 2) + 2 * t + x % 2, lag = j - position - a.lag_bias.first;
        float& score = w[x / 2][2 * half + x % 2];
        if (lag >= 0 && lag < a.lag_bias.width && query[half].there)
          score += a.lag_bias.of(query[half].h)[lag];
        if (j < low[half] || j >= high[half] || (a.mask.padding && a.hidden(b, j)))
          score = -INFINITY;
        most = fmaxf(most, score);
      }
      most = fmaxf(most, __shfl_xor_sync(all_lanes, most, 1));
      most = fmaxf(most, __shfl_xor_sync(all_lanes, most, 2));
      const float top = fmaxf(at[half], most * a.scale.log2e);
      if (__any_sync(all_lanes, top > at[half])) {
        const float keep = ptx::ex2(at[half] - top);
        at[half] = top;
        total[half] *= keep;
#pragma unroll
        for (int n = 0; n < tiles; ++n) {
          acc[n][2 * half] *= keep;
          acc[n][2 * half + 1] *= keep;
        }
      }
#pragma unroll
      for (int x = 0; x < BK / 4; ++x) {
        float& weight = w[x / 2][2 * half + x % 2];
        weight = ptx::ex2(fmaf(weight, a.scale.log2e, -at[half]));
        total[half] += weight;
      }
    }
#pragma unroll
    for (int x = 0; x < BK / 16; ++x) {
      Fragment left;
      tile::pack(left, w[2 * x], w[2 * x + 1]);
#pragma unroll
      for (int n = 0; n < tiles; ++n) {
        Fragment f;
        P::column(f, rows[x][n / V], n % V);
        tile::accumulate(acc[n], left, f, 0);
      }
    }
  }
  // The warps' sums, in their order.
#pragma unroll
  for (int n = 0; n < tiles; ++n)
    values[warp][n][lane] = {acc[n][0], acc[n][1], acc[n][2], acc[n][3]};
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    total[half] += __shfl_xor_sync(all_lanes, total[half], 1);
    total[half] += __shfl_xor_sync(all_lanes, total[half], 2);
    if (t == 0) marks[warp][g + 8 * half] = {at[half], total[half]};
  }
  __syncthreads();
  float factor[warps][2];
  const int64_t block = int64_t(blockIdx.x) * s.count + blockIdx.y;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    float2 mark[warps], sum = {-1e30f, 0};
#pragma unroll
    for (int u = 0; u < warps; ++u) {
      mark[u] = marks[u][g + 8 * half];
      sum.x = fmaxf(sum.x, mark[u].x);
    }
#pragma unroll
    for (int u = 0; u < warps; ++u) {
      factor[u][half] = ptx::ex2(mark[u].x - sum.x);
      sum.y += factor[u][half] * mark[u].y;
    }
    if (warp == 0 && t == 0 && query[half].there) s.marks[block * tile_rows + g + 8 * half] = sum;
  }
#pragma unroll
  for (int n = warp; n < tiles; n += warps) {
    float sum[4] = {};
#pragma unroll
    for (int u = 0; u < warps; ++u) {
      const float4 x = values[u][n][lane];
      sum[0] += factor[u][0] * x.x, sum[1] += factor[u][0] * x.y;
      sum[2] += factor[u][1] * x.z, sum[3] += factor[u][1] * x.w;
    }
#pragma unroll
    for (int half = 0; half < 2; ++half)
      if (query[half].there)
        s.sums[((block * 2 + half) * tiles + n) * 32 + lane] = {sum[2 * half], sum[2 * half + 1]};
  }
}

/// out [B, H, M, Dv] from the sums and marks of splits; a warp has a query
template <class T, int D>
__global__ void __launch_bounds__(warps * 32)
    attention_decode_sums(const __grid_constant__ AttentionArgs a,
                          const __grid_constant__ Splits s) {
  constexpr int V = pack_size<T>, tiles = D / 8;
  __shared__ float2 places[warps][D / 2 + D / 64 * V];
  const int warp = int(threadIdx.x) / 32, lane = int(threadIdx.x) % 32, t = lane % 4;
  const int index = int(blockIdx.x) * warps + warp;
  if (index >= a.sizes.batch * a.sizes.heads * a.sizes.m) return;
  const int i = index % a.sizes.m, h = index / a.sizes.m % a.sizes.heads,
            b = index / a.sizes.m / a.sizes.heads;
  const int groups = a.sizes.heads / a.sizes.per_group, unit = b * groups + h / a.sizes.per_group;
  const int row = h % a.sizes.per_group * a.sizes.m + i, r = row % tile_rows;
  const int64_t block = (int64_t(unit) * s.row_tiles + row / tile_rows) * s.count;
  const float2* const marks = s.marks + block * tile_rows + r;
  const float2* const sums = s.sums + (block * 2 + r / 8) * tiles * 32 + r % 8 * 4 + t;
  float top = -1e30f;
#pragma unroll 1
  for (int x = lane; x < s.count; x += 32) top = fmaxf(top, marks[x * tile_rows].x);
#pragma unroll
  for (int lanes = 16; lanes > 0; lanes /= 2)
    top = fmaxf(top, __shfl_xor_sync(all_lanes, top, lanes));
  float total = 0;
  float2 value[D / 64] = {};
#pragma unroll 4
  for (int x = 0; x < s.count; ++x) {
    const float2 mark = marks[x * tile_rows];
    const float factor = ptx::ex2(mark.x - top);
    total += factor * mark.y;
#pragma unroll
    for (int c = 0; c < D / 64; ++c) {
      const float2 y = sums[(int64_t(x) * 2 * tiles + c * 8 + lane / 4) * 32];
      value[c].x += factor * y.x;
      value[c].y += factor * y.y;
    }
  }
  const float by = total == 0 ? 0.f : 1 / total;
  // Columns from registers' order to a row's; a gap after every 32 keeps their banks apart.
  float* const place = reinterpret_cast<float*>(places[warp]);
#pragma unroll
  for (int c = 0; c < D / 64; ++c) {
    const int n = c * 8 + lane / 4, column = n / V * 8 * V + 2 * V * t + n % V;
    place[column + column / 32 * V] = value[c].x * by;
    place[column + V + (column + V) / 32 * V] = value[c].y * by;
  }
  __syncwarp();
#pragma unroll
  for (int c = 0; c < D / 64; ++c) {
    const int column = c * 64 + 2 * lane;
    const float2 x = *reinterpret_cast<const float2*>(place + column + column / 32 * V);
    if (column < a.results.out.chunks * 8)
      *reinterpret_cast<Pack<T, 2>*>(a.results.out.at<T>(b, h, i) + column) = {cast<T>(x.x),
                                                                               cast<T>(x.y)};
  }
}

/// A block has enough keys that what it leaves is little beside them.
int keys_per_split(int64_t keys, int64_t blocks, int64_t rows) {
  const int64_t least = std::max<int64_t>(256, 32 * std::min<int64_t>(rows, tile_rows));
  return int(std::max(least, ceil_div(ceil_div(keys * blocks, int64_t(528)), int64_t(128)) * 128));
}

template <class T, int D>
void decode(const AttentionArgs& a, Splits s, int device) {
  const int64_t rows = int64_t(a.sizes.per_group) * a.sizes.m;
  s.row_tiles = int(ceil_div(rows, int64_t(tile_rows)));
  const int64_t blocks = int64_t(a.sizes.batch) * (a.sizes.heads / a.sizes.per_group) * s.row_tiles;
  s.per_split = keys_per_split(a.sizes.n - s.begin, blocks, rows);
  s.count = int(ceil_div(a.sizes.n - s.begin, s.per_split));
  const TensorOptions wide{.dtype = f32, .device = Device(DeviceType::cuda, device)};
  const Tensor sums = empty({blocks * s.count, D / 4 * 64}, wide),
               marks = empty({blocks * s.count, 2 * tile_rows}, wide);
  s.sums = reinterpret_cast<float2*>(sums.data<float>());
  s.marks = reinterpret_cast<float2*>(marks.data<float>());
  const dim3 grid(unsigned(blocks), unsigned(s.count));
  const auto kernel = a.table.rows.data ? attention_decode_splits<T, D, true>
                                        : attention_decode_splits<T, D, false>;
  launch("attention", device, kernel, grid, warps * 32, a, s);
  launch("attention", device, attention_decode_sums<T, D>,
         unsigned(ceil_div(int64_t(a.sizes.batch) * a.sizes.heads * a.sizes.m, int64_t(warps))),
         warps * 32, a, s);
}

}  // namespace

bool attention_decode_takes(const AttentionCall& c) {
  const int64_t blocks = c.q.size(0) * c.q.size(1), m = c.q.size(2), n = c.k.size(2);
  return m > 0 && m <= most_queries && n >= 512 && blocks < 66 && c.dropout == 0 &&
         attention_takes(c);
}

void attention_decode(const AttentionCall& call, bool clip, const Tensor& out) {
  Tensors kept;
  AttentionArgs a = attention_args(call, kept, false);
  a.results.out = head_rows<void>(out);
  Splits s = {};
  s.clip = clip;
  const int64_t first = call.k.size(2) - call.q.size(2);  // the first query's position
  if (a.mask.window > 0) s.begin = int(std::max<int64_t>(0, first - a.mask.window + 1));
  if (a.mask.block > 0)
    s.begin = int(std::max<int64_t>(0, (first / a.mask.block - 1) * a.mask.block));
  const int device = call.q.device().index;
  if (call.q.dtype() == f32)
    decode<float, 64>(a, s, device);
  else if (std::max(call.q.size(3), call.v.size(3)) <= 64)
    decode<BFloat16, 64>(a, s, device);
  else
    decode<BFloat16, 128>(a, s, device);
}

}  // namespace stretto::cuda
