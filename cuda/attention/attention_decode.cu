// Fused attention of few queries (Flash-Decoding, Dao et al. 2023): the kernel of splits.
//
// The queries of all heads of a key head, up to 16 of them, are the rows of one tile of a product.
// A block processes a split of the keys, whose steps its warps take in turn:
//
//               keys of split 0                 split 1
//             ┌──────┬──────┬──────┬──────┬───┬──────┬──
//   16 rows:  │warp 0│warp 1│warp 2│warp 3│w 0│warp 0│     strip: rows × relative positions
//   h, i      │      │      │      │      │   │      │     of the last query; row (h, i) moves by
//             └──────┴──────┴──────┴──────┴───┴──────┴──   M − 1 − i columns
//
//   for each step:  w = q kᵀ + strip of p with the table, moved + bias;  hidden keys: −∞
//                   row_max, w = 2^(w · log2e_scale − row_max);  acc += w V;  total += w
//   acc and total of the warps are added in shared memory, those of splits by a second kernel
//   (attention_decode_sums.cu), in the order of the keys
//
// Keys, values and table rows go from memory directly to registers, as operands: the 16 bytes that
// a lane reads at once are adjacent in a row, and the columns of the products are permuted
// accordingly. The number subtracted from exponents is rounded before, so that for large scores all
// weights of a row have the same rounding error. Tested against the composed implementation in f64.
#include "cuda/attention/attention_decode.cuh"
#include "cuda/attention/attention_decode.h"

namespace stretto::cuda {
namespace {

constexpr int most_queries = 8, tile_rows = Splits::tile_rows, warps = Splits::warps;
constexpr uint32_t all_lanes = 0xffffffffu;

/// A row of a head; zeros if it is out of range.
template <class T>
struct Row {
  const T* data;
  int columns;
  __device__ Row(const OperandRows<const void>& rows, int b, int h, int i, bool in_range)
      : data(rows.at<const T>(b, h, i)), columns(in_range ? rows.chunks * 8 : 0) {}
  /// 16 bytes from column `at` on.
  __device__ uint4 piece(int at) const {
    if (at >= columns) return {0, 0, 0, 0};
    return *reinterpret_cast<const uint4*>(data + at);
  }
};

/// Splits four f32 into the parts of two pairs, which become registers `place` and `place`
/// + Step of a fragment.
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

/// Pieces of 16 bytes in a dtype: V elements; `steps` of 16 (in the sum of a product) in the pieces
/// of four lanes; bf16 parts of an element.
template <class T>
struct Pieces {
  static constexpr int V = pack_size<T>, steps = V / 4, parts = sizeof(T) == 2 ? 1 : 3;
  using Fragment = tile::Fragment<parts>;

  /// Sets row `half` of left operands.
  __device__ static void left(Fragment* f, int half, const uint4& x) {
    if constexpr (parts == 1) {
      f[0].r[0][half] = x.x, f[0].r[0][half + 2] = x.y;
      f[1].r[0][half] = x.z, f[1].r[0][half + 2] = x.w;
    } else {
      cut<2>(f[0], half, x);
    }
  }
  /// Sets the right operands of the steps, one after the other.
  __device__ static void right(Fragment& f, const uint4& x) {
    if constexpr (parts == 1)
      f.r[0][0] = x.x, f.r[0][1] = x.y, f.r[0][2] = x.z, f.r[0][3] = x.w;
    else
      cut<1>(f, 0, x);
  }
  /// Sets a right operand to column e of the pieces of four rows, which are summed over.
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

/// Moves the elements of a strip's row to the left by `ahead` columns, 0 … 7.
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
  /// Two adjacent elements of a tile, from it and the next one.
  __device__ float2 pair(float a0, float a1, float b0, float b1) const {
    const float x = odd ? (next[0] ? b1 : a1) : (next[0] ? b0 : a0);
    const float y = odd ? (next[1] ? b0 : a0) : (next[1] ? b1 : a1);
    return {tile::lane_of(x, from[0]), tile::lane_of(y, from[1])};
  }
};

/// The compile-time configuration of the kernel of splits.
struct DecodeTile {
  int head = 64;          // head dimension, to which operands are padded with zeros
  int parts = 1;          // bf16 parts of an element: 1 in bf16, 3 in f32
  bool table = false;     // of relative positions
  bool extended = false;  // masks that are tensors, and the soft cap

  constexpr int keys() const { return head * (parts > 1 ? 4 : 2) <= 128 ? 32 : 16; }  // per step
};

/// A warp's part of a block of attention_decode_splits, with its lane's operands.
template <DecodeTile C>
struct SplitWarp {
  using T = std::conditional_t<C.parts == 1, BFloat16, float>;
  using P = Pieces<T>;
  using Fragment = typename P::Fragment;
  static constexpr int V = P::V, pieces = C.head / (4 * V), wide = C.head / (8 * V);
  static constexpr int steps = C.head / 16, tiles = C.head / 8, BK = C.keys();
  struct Shared {
    float4 values[warps][tiles][32];
    float2 marks[warps][tile_rows];
    uint4 positions[C.table ? steps : 1][P::parts][32];  // left operands of all warps
  };
  using Scores = float[BK / 8][4];
  using Values = uint4[BK / 16][wide][4];

  const int warp = int(threadIdx.x) / 32, lane = int(threadIdx.x) % 32, g = lane / 4, t = lane % 4;
  const int row0, b, kh, start, end;  // the tile's first row; batch entry and key head; keys
  const Query query[2];
  const Shift shift[2];
  int low[2], high[2];  // the range of keys that the queries see
  int first_table = 0,
      last_table = 0;  // heads of the tile's rows, if these have tables of their own
  Fragment fq[steps];
  float acc[tiles][4] = {}, row_max[2] = {-1e30f, -1e30f}, total[2] = {};

  __device__ SplitWarp(const AttentionArgs& a, const Splits& s, int groups, int unit)
      : row0(int(blockIdx.x) % s.row_tiles * tile_rows),
        b(unit / groups),
        kh(unit % groups),
        start(s.begin + int(blockIdx.y) * s.per_split),
        end(min(a.sizes.n, start + s.per_split)),
        query{{a, kh, row0 + g}, {a, kh, row0 + g + 8}},
        shift{{lane, a.sizes.m - 1 - query[0].i}, {lane, a.sizes.m - 1 - query[1].i}} {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int position = query[half].i + a.sizes.shift;
      low[half] = a.first_key(position);
      high[half] = min(end, a.end_key(position));
    }
    if (C.table && a.table.rows.head != 0) {
      const int last_row = min(row0 + tile_rows, a.sizes.per_group * a.sizes.m) - 1;
      first_table = kh * a.sizes.per_group + row0 / a.sizes.m;
      last_table = kh * a.sizes.per_group + last_row / a.sizes.m;
    }
  }

  /// The row of a query in q or p.
  __device__ Row<T> query_row(const OperandRows<const void>& from, int half) const {
    return {from, b, query[half].h, query[half].i, query[half].in_range};
  }
  __device__ void load_queries(const AttentionArgs& a, Shared& shared) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const Row<T> row = query_row(a.operands.q, half);
#pragma unroll
      for (int c = 0; c < pieces; ++c)
        P::left(&fq[c * P::steps], half, row.piece(4 * V * c + V * t));
    }
    if constexpr (C.table) {
      if (warp == 0) {
        const Row<T> rows[2] = {query_row(a.operands.p, 0), query_row(a.operands.p, 1)};
#pragma unroll
        for (int c = 0; c < pieces; ++c) {
          Fragment f[P::steps];
#pragma unroll
          for (int half = 0; half < 2; ++half)
            P::left(f, half, rows[half].piece(4 * V * c + V * t));
#pragma unroll
          for (int y = 0; y < P::steps; ++y)
#pragma unroll
            for (int part = 0; part < P::parts; ++part) {
              const uint32_t(&r)[4] = f[y].r[part];
              shared.positions[c * P::steps + y][part][lane] = {r[0], r[1], r[2], r[3]};
            }
        }
      }
      __syncthreads();
    }
  }

  __device__ void load_values(const AttentionArgs& a, Values& values, int j0) const {
#pragma unroll
    for (int x = 0; x < BK / 16; ++x)
#pragma unroll
      for (int r = 0; r < 4; ++r) {
        const int j = j0 + 16 * x + 2 * t + r % 2 + 8 * (r / 2);
        const Row<T> row(a.operands.v, b, kh, j, j < end);
#pragma unroll
        for (int c = 0; c < wide; ++c) values[x][c][r] = row.piece(8 * V * c + V * g);
      }
  }

  /// The product of queries with keys. Also loads the values: together with the keys or, if there
  /// is a table and registers do not suffice for both, after its term.
  __device__ void scores(const AttentionArgs& a, const Splits& s, const Shared& shared, Scores& w,
                         Values& values, int j0) const {
    uint4 keys[BK / 8][pieces];
#pragma unroll
    for (int n = 0; n < BK / 8; ++n) {
      const int j = j0 + 8 * n + g;
      const Row<T> row(a.operands.k, b, kh, j, j < end);
#pragma unroll
      for (int c = 0; c < pieces; ++c) keys[n][c] = row.piece(4 * V * c + V * t);
    }
    if (!C.table) load_values(a, values, j0);
#pragma unroll
    for (int n = 0; n < BK / 8; ++n)
#pragma unroll
      for (int c = 0; c < pieces; ++c) {
        Fragment f;
        P::right(f, keys[n][c]);
#pragma unroll
        for (int y = 0; y < P::steps; ++y) tile::multiply(w[n], fq[c * P::steps + y], f, y);
      }
    if constexpr (C.table) {
#pragma unroll 1
      for (int h = first_table; h <= last_table; ++h) add_relative_term(a, s, shared, w, h, j0);
    }
    if (C.table) load_values(a, values, j0);
  }

  /// Tile n of the strip of head h: column c belongs to the relative position of key j0 +
  /// c to the last query.
  __device__ void strip(const AttentionArgs& a, const Splits& s, const Shared& shared,
                        float (&d)[4], int h, int j0, int n) const {
    d[0] = d[1] = d[2] = d[3] = 0;
    const int own = tile::opaque(lane);  // too many operands to hold them over the loop
    const int j = j0 + 8 * n + g;
    int row = j - (a.sizes.n - 1) + a.table.zero_row;
    if (s.clip) row = min(max(row, 0), a.table.count - 1);
    const Row<T> from(a.table.rows, 0, h, row,
                      j < end + a.sizes.m - 1 && row >= 0 && row < a.table.count);
#pragma unroll(P::parts == 1 ? pieces : 1)
    for (int c = 0; c < pieces; ++c) {
      Fragment f;
      P::right(f, from.piece(4 * V * c + V * t));
#pragma unroll
      for (int y = 0; y < P::steps; ++y) {
        Fragment left;
#pragma unroll
        for (int part = 0; part < P::parts; ++part) {
          const uint4 r = shared.positions[c * P::steps + y][part][own];
          left.r[part][0] = r.x, left.r[part][1] = r.y;
          left.r[part][2] = r.z, left.r[part][3] = r.w;
        }
        tile::multiply(d, left, f, y);
      }
    }
  }
  __device__ void add_relative_term(const AttentionArgs& a, const Splits& s, const Shared& shared,
                                    Scores& w, int h, int j0) const {
    float now[4], next[4] = {};
    strip(a, s, shared, now, h, j0, 0);
#pragma unroll
    for (int n = 0; n < BK / 8; ++n) {
      if (n + 1 < BK / 8 || a.sizes.m > 1) strip(a, s, shared, next, h, j0, n + 1);
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const float2 x =
            shift[half].pair(now[2 * half], now[2 * half + 1], next[2 * half], next[2 * half + 1]);
        if (a.table.rows.head != 0 && h != query[half].h) continue;
        w[n][2 * half] += x.x;
        w[n][2 * half + 1] += x.y;
      }
#pragma unroll
      for (int e = 0; e < 4; ++e) now[e] = next[e];
    }
  }

  /// Sets bit x if masks that are tensors hide the lane's key x from the query of a row.
  __device__ uint32_t hidden_bits(const AttentionArgs& a, int half, int j0) const {
    uint32_t bits = 0;
    if constexpr (C.extended) {
      if (!query[half].in_range) return 0;
      a.mask.tensors.each_mask(b, query[half].h, [&](const auto& hides) {
#pragma unroll 1
        for (int x = 0; x < BK / 4; ++x)
          bits |= uint32_t(hides(query[half].i, j0 + 8 * (x / 2) + 2 * t + x % 2)) << x;
      });
    }
    return bits;
  }
  /// Converts the scores of a row to weights: adds the bias of relative positions, applies the
  /// mask, and subtracts the largest exponent so far.
  __device__ void weights(const AttentionArgs& a, Scores& w, int half, int j0, uint32_t hidden) {
    const int position = query[half].i + a.sizes.shift;
    float max = -INFINITY;
#pragma unroll
    for (int x = 0; x < BK / 4; ++x) {
      const int j = j0 + 8 * (x / 2) + 2 * t + x % 2,
                bias_column = j - position - a.relative_bias.first;
      float& score = w[x / 2][2 * half + x % 2];
      if (bias_column >= 0 && bias_column < a.relative_bias.width && query[half].in_range)
        score += a.relative_bias.of(query[half].h)[bias_column];
      if (C.extended && a.cap.from != 0) score = a.template capped<C.parts>(score);
      if (j < low[half] || j >= high[half] || (a.mask.padding && a.hidden_keys(b)(j)) ||
          (C.extended && hidden >> x & 1))
        score = -INFINITY;
      max = fmaxf(max, score);
    }
    const float to = fmaxf(row_max[half], tile::quad_max(max) * a.scale.log2e);
    if (__any_sync(all_lanes, to > row_max[half])) {
      const float factor = ptx::ex2(row_max[half] - to);
      row_max[half] = to;
      total[half] *= factor;
#pragma unroll
      for (int n = 0; n < tiles; ++n) {
        acc[n][2 * half] *= factor;
        acc[n][2 * half + 1] *= factor;
      }
    }
#pragma unroll
    for (int x = 0; x < BK / 4; ++x) {
      float& weight = w[x / 2][2 * half + x % 2];
      weight = ptx::ex2(fmaf(weight, a.scale.log2e, -row_max[half]));
      total[half] += weight;
    }
  }
  __device__ void add_values(const Scores& w, const Values& values) {
#pragma unroll
    for (int x = 0; x < BK / 16; ++x) {
      Fragment left;
      tile::pack(left, w[2 * x], w[2 * x + 1]);
#pragma unroll
      for (int n = 0; n < tiles; ++n) {
        Fragment f;
        P::column(f, values[x][n / V], n % V);
        tile::accumulate(acc[n], left, f, 0);
      }
    }
  }

  /// Adds the warps' sums in their order, and stores them.
  __device__ void store(const Splits& s, Shared& shared) {
#pragma unroll
    for (int n = 0; n < tiles; ++n)
      shared.values[warp][n][lane] = {acc[n][0], acc[n][1], acc[n][2], acc[n][3]};
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      total[half] = tile::quad_sum(total[half]);
      if (t == 0) shared.marks[warp][g + 8 * half] = {row_max[half], total[half]};
    }
    __syncthreads();
    float factor[warps][2];
    const int64_t block = int64_t(blockIdx.x) * s.count + blockIdx.y;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float2 mark[warps], sum = {-1e30f, 0};
#pragma unroll
      for (int u = 0; u < warps; ++u) {
        mark[u] = shared.marks[u][g + 8 * half];
        sum.x = fmaxf(sum.x, mark[u].x);
      }
#pragma unroll
      for (int u = 0; u < warps; ++u) {
        factor[u][half] = ptx::ex2(mark[u].x - sum.x);
        sum.y += factor[u][half] * mark[u].y;
      }
      if (warp == 0 && t == 0 && query[half].in_range)
        s.marks[block * tile_rows + g + 8 * half] = sum;
    }
#pragma unroll
    for (int n = warp; n < tiles; n += warps) {
      float sum[4] = {};
#pragma unroll
      for (int u = 0; u < warps; ++u) {
        const float4 x = shared.values[u][n][lane];
        sum[0] += factor[u][0] * x.x, sum[1] += factor[u][0] * x.y;
        sum[2] += factor[u][1] * x.z, sum[3] += factor[u][1] * x.w;
      }
#pragma unroll
      for (int half = 0; half < 2; ++half)
        if (query[half].in_range)
          s.sums[((block * 2 + half) * tiles + n) * 32 + lane] = {sum[2 * half], sum[2 * half + 1]};
    }
  }
};

/// grid: [B G row_tiles, splits]; sums and marks from q [B, H, M, D], k [B, G, N, D] and
/// v [B, G, N, Dv]
template <class Warp>
__global__ void __launch_bounds__(warps * 32, 2)
    attention_decode_splits(const __grid_constant__ AttentionArgs a,
                            const __grid_constant__ Splits s) {
  __shared__ typename Warp::Shared shared;
  Warp warp(a, s, a.sizes.heads / a.sizes.per_group, int(blockIdx.x) / s.row_tiles);
  warp.load_queries(a, shared);
#pragma unroll 1
  for (int j0 = warp.start + warp.warp * Warp::BK; j0 < warp.end; j0 += warps * Warp::BK) {
    typename Warp::Scores w = {};
    typename Warp::Values values;
    const uint32_t hidden[] = {warp.hidden_bits(a, 0, j0), warp.hidden_bits(a, 1, j0)};
    warp.scores(a, s, shared, w, values, j0);
#pragma unroll
    for (int half = 0; half < 2; ++half) warp.weights(a, w, half, j0, hidden[half]);
    warp.add_values(w, values);
  }
  warp.store(s, shared);
}

/// A block has enough keys to make its partial sums small in comparison.
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
  using Tile = DecodeTile;
  constexpr int parts = Pieces<T>::parts;
  const auto run = [&]<bool Table, bool Extended>() {
    constexpr Tile tile{.head = D, .parts = parts, .table = Table, .extended = Extended};
    launch("attention", device, attention_decode_splits<SplitWarp<tile>>, grid, warps * 32, a, s);
    launch_decode_sums<T, D>(a, s, device);
  };
  const bool table = a.table.rows.data;
  if constexpr (parts == 1) {
    if (table && is_extended(a)) return run.template operator()<true, true>();
  }
  if (is_extended(a))
    run.template operator()<false, true>();
  else
    table ? run.template operator()<true, false>() : run.template operator()<false, false>();
}

}  // namespace

bool attention_decode_takes(const AttentionOperands& c) {
  const int64_t blocks = c.q.size(0) * c.q.size(1), m = c.q.size(2), n = c.k.size(2);
  const AttentionOptions& o = c.options;
  // Registers do not suffice for an f32 table with a soft cap or masks that are tensors.
  const bool plain = o.soft_cap == 0 && !setting_besides(o.mask, {"causal", "window", "block",
                                                                  "key_padding", "window_after"});
  return m > 0 && m <= most_queries && n >= 512 && blocks < 66 && o.dropout == 0 &&
         (plain || c.q.dtype() == bf16 || !o.relative_keys.defined()) && attention_takes(c);
}

void attention_decode(const AttentionOperands& inputs, const Tensor& out) {
  Tensors kept;
  AttentionArgs a = attention_args(inputs, kept, false);
  a.results.out = operand_rows<void>(out);
  Splits s = {};
  s.clip = inputs.options.relative_keys.out_of_range == OutOfRange::clip;
  const int64_t first = inputs.k.size(2) - inputs.q.size(2);  // the first query's position
  if (a.mask.window > 0) s.begin = int(std::max<int64_t>(0, first - a.mask.window + 1));
  if (a.mask.block > 0)
    s.begin = int(std::max<int64_t>(0, (first / a.mask.block - 1) * a.mask.block));
  const int device = inputs.q.device().index;
  if (inputs.q.dtype() == f32)
    decode<float, 64>(a, s, device);
  else if (widest(inputs) <= 64)
    decode<BFloat16, 64>(a, s, device);
  else
    decode<BFloat16, 128>(a, s, device);
}

}  // namespace stretto::cuda
