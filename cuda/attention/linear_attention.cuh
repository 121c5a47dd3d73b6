// What the kernels of linear attention share: where a warp's part of things is, and the state.
//
// A block of 8 warps takes 64 positions at a time. Warp w has rows 16 (w % 4) … of them, and of
// results and of the state one half of the columns, w / 4; of the state, features 16 (w % 4) + 64
// j. The state S [F, Dv] and z [F] stays in registers, in f32: what 64 positions bring is summed up
// from zero and then added. For products it is in shared memory, exact (WideTile).
#pragma once

#include "cuda/attention/linear_attention.h"
#include "cuda/runtime/blocks.cuh"

namespace stretto::cuda::linear {

constexpr int chunk = 64, threads = 256;

/// [B, H, L, width] by pointer and strides, in numbers.
template <class T>
struct Rows {
  T* data = nullptr;
  int64_t batch = 0, head = 0, row = 0;
  __device__ T* at(int b, int h) const { return data + b * batch + h * head; }
};
template <class T>
Rows<T> rows_of(const Tensor& x) {
  const Shape& s = x.strides();
  return {x.data<std::remove_const_t<T>>(), s[0], s[1], s[2]};
}

/// Where states [F, Dv + 1] are, by unit (batch entry and key head) and segment.
template <class T>
struct States {
  T* data = nullptr;
  int64_t unit = 0, segment = 0;
  __device__ T* at(int u, int s) const { return data + u * unit + s * segment; }
};

/// Sizes that all kernels know. Position p of a chunk is that of key p and of query p − shift.
struct Sizes {
  int heads, groups, m, n, f, dv;
  int first, shift;  // the first position of chunk 0
  int chunks, per_segment;
};

/// The place of a thread.
struct Place {
  int slab = int(threadIdx.x) / 32 % 4, side = int(threadIdx.x) / 128;
  int row = lane_index() / 4, column = lane_index() % 4 * 2;  // of sums

  /// Keeps the compiler from computing what follows from it before a loop, for all iterations.
  __device__ void renew() { asm volatile("" : "+r"(slab), "+r"(side), "+r"(row), "+r"(column)); }
};

/// How many steps of a sum's loop stand in the code: what registers suffice for.
template <class T, int blocks>
constexpr int steps_at_once = sizeof(T) == 2 && blocks <= 2 ? 2 : 1;

/// Sums of an operand's rows l / 4 + 8h, the same in all lanes of a row.
template <class T>
struct RowSums;
template <>
struct RowSums<BFloat16> {
  float d[4] = {};
  __device__ void add(const Left<BFloat16>& a) {
    constexpr uint32_t ones = 0x3f803f80;
    ptx::mma(d, a.r, ones, ones);
  }
  __device__ float get(int h) const { return d[2 * h]; }
};
template <>
struct RowSums<float> {
  float d[2] = {};
  __device__ void add(int h, float x) { d[h] += x; }
  __device__ void add(const Left<float>& a) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const float2 two = a.values(i / 2, i % 2);
      add(i / 2, two.x + two.y);
    }
  }
  __device__ float get(int h) const { return row_sum(d[h]); }
};

/// z in shared memory, Width numbers, for products with rows of left operands. bf16 has four for
/// each that add up to it, a pitch apart, as columns of a right operand.
template <class T, int Width>
struct Line;
template <int Width>
struct Line<float, Width> {
  static constexpr int bytes = Width * 4;
  struct Sums {
    float d[2] = {};
    __device__ float part(int h) const { return d[h]; }
  };
  float* data;

  __device__ void set(int i, float x) const { data[i] = x; }
  __device__ void multiply(Sums& sums, const Left<float>& a, int column) const {
#pragma unroll
    for (int j = 0; j < 2; ++j) {
      const float2 x =
          *reinterpret_cast<const float2*>(data + column + 8 * j + lane_index() % 4 * 2);
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const float2 one = a.values(h, j);
        sums.d[h] += one.x * x.x + one.y * x.y;
      }
    }
  }
};
template <int Width>
struct Line<BFloat16, Width> {
  static constexpr int pitch = Width * 2 + 16, bytes = 4 * pitch;  // of other banks
  struct Sums {
    float d[4] = {};
    /// This lane's part of the sum of row l / 4 + 8h.
    __device__ float part(int h) const {
      return lane_index() % 4 < 2 ? d[2 * h] + d[2 * h + 1] : 0;
    }
  };
  char* data;

  __device__ void set(int i, float x) const {
#pragma unroll
    for (int part = 0; part < 4; ++part) {
      const uint32_t most = ptx::cvt_pack(x, 0);
      *reinterpret_cast<uint16_t*>(data + part * pitch + i * 2) = uint16_t(most);
      x -= __uint_as_float(most << 16);
    }
  }
  __device__ void multiply(Sums& sums, const Left<BFloat16>& a, int column) const {
    const char* const from = data + lane_index() / 4 % 4 * pitch + lane_index() % 4 * 4;
    ptx::mma(sums.d, a.r, *reinterpret_cast<const uint32_t*>(from + column * 2),
             *reinterpret_cast<const uint32_t*>(from + column * 2 + 16));
  }
};
/// A warp's part of the state, features up to 64 JF, columns up to 64 ND.
template <class T, int JF, int ND>
struct State {
  // Where registers do not suffice it is in the tile alone, and changes between barriers.
  static constexpr bool in_tile = sizeof(T) == 4 && JF == 4;
  static constexpr int kept = in_tile ? 1 : JF;
  using Tile64 = WideTile<T, 64 * ND>;
  float s[kept][2 * ND][2][4];
  float z[kept][2];

  __device__ static int feature(const Place& p, int j) { return 16 * (p.slab + 4 * j); }
  __device__ static int column(const Place& p, int c) { return 32 * ND * p.side + 16 * c; }

  /// f(number, feature, column) of a block of the state; columns below dv, features below f.
  template <class D, class F>
  __device__ static void each(const Place& p, int j, int c, int f, int dv, D& d, F visit) {
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      const int row = feature(p, j) + p.row + i % 4 / 2 * 8,
                at = column(p, c) + i / 4 * 8 + p.column + i % 2;
      if (row < f && at < dv) visit(d[i / 4][i % 4], row, at);
    }
  }
  /// f(j, h, feature) of z.
  template <class F>
  __device__ static void each_sum(const Place& p, F visit) {
#pragma unroll
    for (int j = 0; j < JF; ++j)
#pragma unroll
      for (int h = 0; h < 2; ++h) visit(j, h, feature(p, j) + p.row + 8 * h);
  }
  __device__ static bool owns_sums(const Place& p) { return p.side == 0 && p.column == 0; }

  /// From memory, or 0 where `from` is null; into shared memory, too, where something reads it.
  template <class Sums>
  __device__ void begin(const Place& p, const float* from, int f, int dv, const Tile64& tile,
                        const Sums& sums, bool shares) {
#pragma unroll
    for (int j = 0; j < JF; ++j)
#pragma unroll
      for (int c = 0; c < 2 * ND; ++c) {
        float d[2][4] = {};
        if (from)
          each(p, j, c, f, dv, d,
               [&](float& x, int row, int at) { x = from[row * (dv + 1) + at]; });
        if constexpr (in_tile)
          tile.write(feature(p, j), column(p, c), d);
        else
#pragma unroll
          for (int i = 0; i < 8; ++i) s[j][c][i / 4][i % 4] = d[i / 4][i % 4];
      }
    each_sum(p, [&](int j, int h, int row) {
      const float x = from && row < f ? from[row * (dv + 1) + dv] : 0;
      if constexpr (!in_tile)
        z[j][h] = x;
      else if (owns_sums(p))
        sums.set(row, x);
    });
    if (shares) share(p, tile, sums);
  }
  template <class Sums>
  __device__ void store(const Place& p, const Tile64& tile, const Sums& sums, float* to, int f,
                        int dv) const {
#pragma unroll
    for (int j = 0; j < JF; ++j)
#pragma unroll
      for (int c = 0; c < 2 * ND; ++c) {
        const auto put = [&](const float& x, int row, int at) { to[row * (dv + 1) + at] = x; };
        if constexpr (in_tile) {
          float d[2][4] = {};
          tile.add_to(d, feature(p, j), column(p, c));
          each(p, j, c, f, dv, d, put);
        } else {
          each(p, j, c, f, dv, s[j][c], put);
        }
      }
    each_sum(p, [&](int j, int h, int row) {
      if (row >= f || !owns_sums(p)) return;
      if constexpr (in_tile)
        to[row * (dv + 1) + dv] = sums.data[row];
      else
        to[row * (dv + 1) + dv] = z[j][h];
    });
  }
  /// Puts it into shared memory, where it is not anyway.
  template <class Sums>
  __device__ void share(const Place& p, const Tile64& tile, const Sums& sums) const {
    if constexpr (!in_tile) {
#pragma unroll
      for (int j = 0; j < JF; ++j)
#pragma unroll
        for (int c = 0; c < 2 * ND; ++c) tile.write(feature(p, j), column(p, c), s[j][c]);
      each_sum(p, [&](int j, int h, int row) {
        if (owns_sums(p)) sums.set(row, z[j][h]);
      });
    }
  }
  /// Adds what a chunk brings: left(j, x, more) gives the operand of features j and positions
  /// 16 x …, whose right operands are rows of `values`, and adds what it brings to z to More, if
  /// that is asked for. In the tile: when all have read it.
  template <class More, class Sums, class F>
  __device__ void add(const Place& p, const Tile<T, 64 * ND>& values, const Tile64& tile,
                      const Sums& sums, F left) {
    constexpr int steps = steps_at_once<T, JF * ND>, together = steps == 2 ? 2 * ND : 1;
    if constexpr (in_tile) __syncthreads();
#pragma unroll
    for (int j = 0; j < JF; ++j)
#pragma unroll
      for (int c0 = 0; c0 < 2 * ND; c0 += together) {
        float sum[together][2][4] = {};
        More more;
#pragma unroll(steps == 2 ? 4 : 1)
        for (int x = 0; x < 4; ++x) {
          const auto a = left(j, x, c0 == 0 ? &more : nullptr);
#pragma unroll
          for (int c = 0; c < together; ++c)
            multiply(sum[c], a, right(values, 16 * x, column(p, c0 + c)));
        }
#pragma unroll
        for (int c = 0; c < together; ++c)
          if constexpr (in_tile)
            tile.add(feature(p, j), column(p, c0 + c), sum[c]);
          else
#pragma unroll
            for (int i = 0; i < 8; ++i) s[j][c0 + c][i / 4][i % 4] += sum[c][i / 4][i % 4];
        if (c0 == 0)
#pragma unroll
          for (int h = 0; h < 2; ++h) {
            const float x = more.get(h);
            if constexpr (!in_tile)
              z[j][h] += x;
            else if (owns_sums(p))
              sums.data[feature(p, j) + p.row + 8 * h] += x;
          }
      }
  }
  /// The same of keys.
  template <class Sums>
  __device__ void add_keys(const Place& p, const Tile<T, 64 * JF>& keys,
                           const Tile<T, 64 * ND>& values, const Tile64& tile, const Sums& sums) {
    add<RowSums<T>>(p, values, tile, sums, [&](int j, int x, RowSums<T>* more) {
      const Left<T> a = left_turned(keys, 16 * x, feature(p, j));
      if (more) more->add(a);
      return a;
    });
  }
};

/// Of 16 × 16 sums over queries and keys, or keys and queries, on the diagonal: what is below it
/// stays, or, turned, above.
template <bool turned>
__device__ inline void mask_diagonal(const Place& p, float (&d)[2][4]) {
#pragma unroll
  for (int h = 0; h < 2; ++h)
#pragma unroll
    for (int j = 0; j < 2; ++j)
#pragma unroll
      for (int e = 0; e < 2; ++e) {  // 8 x 8 numbers are beside the diagonal, or on it
        const int ahead = j == h ? p.column + e - p.row : j - h;
        if (turned ? ahead < 0 : ahead > 0) d[j][2 * h + e] = 0;
      }
}

/// Shared memory of a kernel with `qs` tiles of width F and `vs` of width Dv, in one or two stages,
/// and z as a line of Of.
template <class T, int JF, int ND, int qs, int vs, class Of, int more>
struct Plan {
  using Z = Line<Of, 64 * JF>;
  static constexpr int wide = chunk * 64 * JF * int(sizeof(T)),
                       narrow = chunk * 64 * ND * int(sizeof(T)), stage = qs * wide + vs * narrow,
                       state = 64 * JF * 64 * ND * 4, z = Z::bytes;
  static constexpr int stages = 2 * stage + state + z + more <= 227 * 1024 ? 2 : 1;
  static constexpr int state_at = stages * stage, z_at = state_at + state, more_at = z_at + z,
                       bytes = more_at + more;
  static_assert(bytes <= 227 * 1024);

  __device__ static Z line(char* memory) {
    return {reinterpret_cast<decltype(Z::data)>(memory + z_at)};
  }
};

/// Turns sums of segments [units, segments, F (Dv + 1)] into the states before them; the state
/// after the last goes to `after`. Null states are 0.
void before_segments(const char* op, int device, float* sums, int64_t units, int segments,
                     int64_t size, const float* before, float* after);

/// The states of the keys that queries begin with: causal, before each segment of `s`; two-sided,
/// that of all keys. Computed where there is more to it than in.before, `after` then, too.
struct KeyStates {
  States<const float> at;
  Tensor memory;
};
KeyStates key_states(const LinearAttentionInputs& in, const Tensor& k, const Tensor& v,
                     const Sizes& s, int segments, const Tensor& after);

/// How chunks are cut for so many blocks otherwise: what fills a GPU about twice, 4 chunks at the
/// least in each.
inline int segments_for(int64_t units, int64_t chunks) {
  const int64_t most = ceil_div(chunks, int64_t(4));
  return units >= 100 ? 1 : int(std::clamp<int64_t>(2 * planned_sms / units, 1, most));
}

/// go(JF, ND) for these widths.
template <class T, class F>
void with_widths(int64_t f, int64_t dv, F go) {
  using One = std::integral_constant<int, 1>;
  using Two = std::integral_constant<int, 2>;
  using Four = std::integral_constant<int, 4>;
  if (dv > 64) return f > 64 ? go(Two(), Two()) : go(One(), Two());
  f > 128 ? go(Four(), One()) : f > 64 ? go(Two(), One()) : go(One(), One());
}

/// f<T>() for f32 or bf16.
template <class F>
void with_type(DType type, F f) {
  dispatch_among<float, BFloat16>(type, f);
}

/// x where rows are contiguous and all of them begin at multiples of 16 bytes, else a copy.
inline Tensor aligned_rows(const Tensor& x) {
  const Tensor y = x.detach();
  const int64_t whole = 16 / item_size(y.dtype());
  bool fits = aligned(y.raw_data()) && (y.strides().back() == 1 || y.size(-1) == 1);
  for (int64_t d = 0; d < 3; ++d) fits = fits && (y.size(d) == 1 || y.strides()[d] % whole == 0);
  if (fits) return y;
  const Tensor z = y.contiguous();
  return aligned(z.raw_data()) ? z : z.clone();
}

inline Sizes sizes_of(const Tensor& q, const Tensor& k, const Tensor& v) {
  return {.heads = int(q.size(1)),
          .groups = int(k.size(1)),
          .m = int(q.size(2)),
          .n = int(k.size(2)),
          .f = int(q.size(3)),
          .dv = int(v.size(3)),
          .first = 0,
          .shift = 0,
          .chunks = 0,
          .per_segment = 0};
}
/// The chunks that queries and keys are taken in together (causal), or apart.
inline void causal_chunks(Sizes& s) {
  s.shift = s.n - s.m, s.first = std::min(0, s.shift);
  s.chunks = (s.n - s.first + chunk - 1) / chunk;
}
inline void plain_chunks(Sizes& s, int length) {
  s.shift = s.first = 0;
  s.chunks = (length + chunk - 1) / chunk;
}
inline int cut(Sizes& s, int64_t units) {
  const int segments = segments_for(units, s.chunks);
  s.per_segment = (s.chunks + segments - 1) / segments;
  return (s.chunks + s.per_segment - 1) / s.per_segment;
}

}  // namespace stretto::cuda::linear
