// Shared by the kernels of linear attention: a block's shared memory, the products of a
// chunk, and the state.
//
// A block of 8 warps iterates over chunks of 64 positions of a head, and carries the state S = Σ k
// vᵀ [F, Dv] and z = Σ k [F] (in the keys' sweep T and w, linear_attention_backward.cu) from one
// chunk to the next. Warp w has rows 16 (w % 4) … and the left or right half of the columns, w / 4:
//
//      weights [64, 64]              results [64, Dv]         state S [F, Dv]         z [F]
//        16 keys                       left     right            left     right
//       +----+----+----+----+        +--------+--------+       +--------+--------+    +---+
//    16 | \  |    |    |    |        | warp 0 | warp 4 |     0 | warp 0 | warp 4 |    | 0 |
//       +----+----+----+----+        +--------+--------+       +--------+--------+    +---+
//       | == | \  |    |    |        | warp 1 | warp 5 |    16 | warp 1 | warp 5 |    | 1 |
//       +----+----+----+----+        +--------+--------+       +--------+--------+    +---+
//       | == | == | \  |    |        | warp 2 | warp 6 |    32 | warp 2 | warp 6 |    | 2 |
//       +----+----+----+----+        +--------+--------+       +--------+--------+    +---+
//       | == | == | == | \  |        | warp 3 | warp 7 |    48 | warp 3 | warp 7 |    | 3 |
//       +----+----+----+----+        +--------+--------+       +--------+--------+    +---+
//     queries                         (dq: F wide)          64 | warp 0 | warp 4 | …
//
// In the weights, blocks == are computed in full, those on the diagonal are masked, and the
// others are not computed. In the keys' sweep, rows are keys, and the blocks above the
// diagonal are the full ones.
//
//     start to load the first chunk; state = that before it, also in shared memory
//     for each chunk c:
//         start to load chunk c + 1 into the other stage, if there are two
//         results = rows · (state in shared memory) + weights · (rows of the chunk)
//         state in registers += Kᵀ V of the chunk
//         barrier; copy the state into shared memory; load chunk c + 1, if there is one stage
//         barrier
//
// S and z are f32: the contribution of a chunk is summed from zero and then added. As operands,
// both keep full precision (StateTile, ZOperand). If registers do not suffice for S (f32, F > 128),
// it is only in shared memory.
#pragma once

#include "cuda/attention/linear_attention.cuh"

namespace stretto::cuda::linear {

/// Choices that depend on the number of registers: 255 per thread with one block per
/// multiprocessor, 128 with two.
template <class T, Widths W>
struct Registers {
  static constexpr bool is_bf16 = sizeof(T) == 2;
  static constexpr int parts = W.features / 64 * (W.values / 64);  // of the state
  static constexpr int blocks_per_sm = is_bf16 && parts == 1 ? 2 : 1;
  /// Unrolled steps of a product's loop, whose operands are in registers at the same time.
  static constexpr int steps = is_bf16 && parts <= 2 ? 2 : 1;
  /// True if S is in registers; otherwise it is only in shared memory, and
  /// changes between barriers.
  static constexpr bool hold_state = is_bf16 || W.features <= 128;
  /// True if g Vᵀ of a chunk is in registers in the queries' sweep; otherwise it is computed twice.
  static constexpr bool hold_products = parts <= (is_bf16 ? 2 : 1);
  /// Blocks of 16 queries whose weights the keys' sweep holds at a time.
  static constexpr int query_blocks = parts <= 2 ? 4 : 1;
};

/// Sums of an operand's rows l / 4 + 8h, the same in all lanes of a row.
template <class T>
struct RowSums;
template <>
struct RowSums<BFloat16> {
  float d[4] = {};
  __device__ void add(const Fragment<1>& a) {
    constexpr uint32_t ones = 0x3f803f80;
    ptx::mma(d, a.r[0], ones, ones);
  }
  __device__ float get(int h) const { return d[2 * h]; }
};
template <>
struct RowSums<float> {
  float d[2] = {};
  __device__ void add(int h, float x) { d[h] += x; }
  __device__ void add(const SplitFragment& a) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const float2 two = a.values(i / 2, i % 2);
      add(i / 2, two.x + two.y);
    }
  }
  __device__ float get(int h) const { return quad_sum(d[h]); }
};

/// z in shared memory, Width elements, as an operand of products with rows. In bf16 each element is
/// split into four values that add up to it, a pitch apart, as columns of a right operand.
template <class T, int Width>
struct ZOperand;
template <int Width>
struct ZOperand<float, Width> {
  static constexpr int bytes = Width * 4;
  struct Sums {
    float d[2] = {};
    __device__ float part(int h) const { return d[h]; }
  };
  float* data;

  __device__ void set(int i, float x) const { data[i] = x; }
  __device__ void multiply(Sums& sums, const SplitFragment& a, int column) const {
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
struct ZOperand<BFloat16, Width> {
  static constexpr int pitch = Width * 2 + 16, bytes = 4 * pitch;  // 16 more: other banks
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
  __device__ void multiply(Sums& sums, const Fragment<1>& a, int column) const {
    const char* const from = data + lane_index() / 4 % 4 * pitch + lane_index() % 4 * 4;
    ptx::mma(sums.d, a.r[0], *reinterpret_cast<const uint32_t*>(from + column * 2),
             *reinterpret_cast<const uint32_t*>(from + column * 2 + 16));
  }
};

/// Masks 16 × 16 sums on the diagonal: keeps the elements on and below it (rows are queries,
/// columns keys) or, if transposed, on and above it.
template <bool transposed>
__device__ inline void mask_diagonal(const Place& p, float (&d)[2][4]) {
#pragma unroll
  for (int h = 0; h < 2; ++h)
#pragma unroll
    for (int j = 0; j < 2; ++j)
#pragma unroll
      for (int e = 0; e < 2; ++e) {  // an 8 × 8 block is on the diagonal or entirely off it
        const int ahead = j == h ? p.column + e - p.row : j - h;
        if (transposed ? ahead < 0 : ahead > 0) d[j][2 * h + e] = 0;
      }
}

/// The shared memory of a kernel: for each stage tiles of q and k [rows, F], of v and, if with_g,
/// of the output's gradient [rows, Dv]; the sums S and z; and own_bytes for this kernel only.
/// z_is_operand: z is stored as an operand of matrix products instead of as f32.
struct SharedTiles {
  bool with_g = true, z_is_operand = false;
  int own_bytes = 0;
};

/// The operands of a chunk.
template <class T, Widths W>
struct Chunk {
  using Wide = Tile<T, W.features, chunk>;
  using Narrow = Tile<T, W.values, chunk>;
  static constexpr int wide = Wide::bytes, narrow = Narrow::bytes;
  Wide q, k;
  Narrow v, g;
  __device__ explicit Chunk(char* stage)
      : q{stage}, k{q.data + wide}, v{k.data + wide}, g{v.data + narrow} {}
};

/// S in shared memory, in f32 or as two bf16 parts.
template <class T, Widths W>
using StateTile = Tile<T, W.values, W.features, 4 / int(sizeof(T))>;

/// The kernels' template argument: the host code that nvcc 13 generates for a kernel cannot name an
/// argument of type Widths, but it can name a type that has one.
template <class T, Widths W, SharedTiles Of>
struct SharedMemory {
  using Element = T;
  using Operand = Chunk<T, W>;
  static constexpr Widths widths = W;
  static constexpr int blocks_per_sm = Registers<T, W>::blocks_per_sm;
  using Z = ZOperand<std::conditional_t<Of.z_is_operand, T, float>, W.features>;
  static constexpr int most = 227 * 1024,
                       stage_bytes = 2 * Operand::wide + (Of.with_g ? 2 : 1) * Operand::narrow,
                       state_bytes = StateTile<T, W>::bytes,
                       other_bytes = state_bytes + Z::bytes + Of.own_bytes;
  static constexpr int stages = 2 * stage_bytes + other_bytes <= most ? 2 : 1;
  static constexpr int state_at = stages * stage_bytes, z_at = state_at + state_bytes,
                       own_at = z_at + Z::bytes, bytes = own_at + Of.own_bytes;
  static_assert(bytes <= most);
  char* data;

  __device__ static int stage_of(int step) { return stages == 2 ? step % 2 : 0; }
  __device__ Operand stage(int i) const { return Operand(data + i * stage_bytes); }
  __device__ StateTile<T, W> state() const { return {data + state_at}; }
  __device__ Z z() const { return {reinterpret_cast<decltype(Z::data)>(data + z_at)}; }
  __device__ float* own() const { return reinterpret_cast<float*>(data + own_at); }
};

/// Begins to copy rows first … first + 63 of x [.., limit, width] to a tile. Rows outside 0 …
/// limit − 1, hidden rows, and columns from `width` on become zeros.
template <class Rows, class T>
__device__ __forceinline__ void copy_chunk(const Rows& to, const HeadRows<const T>& x, int b, int h,
                                           int first, int limit, int width,
                                           const uint8_t* hidden = nullptr) {
  constexpr int V = pack_size<T>, chunks = Rows::Rows::chunks, each = threads / chunks;
  // Addresses are recomputed for each chunk: there are too many to keep in registers.
  const unsigned thread = opaque(int(threadIdx.x)), column = thread % chunks * V;
  unsigned r = thread / chunks;
  int row = first + int(r);
  const unsigned most = column < unsigned(width) ? unsigned(limit) : 0;
  const T* from = x.at(b, h, row) + column;
#pragma unroll 4
  for (int i = 0; i < chunk / each; ++i, r += each, row += each, from += each * x.row)
    ptx::copy16(ptx::shared_address(to.at(r, column)), from,
                unsigned(row) < most && !(hidden && hidden[row]));
}
/// Begins to copy the chunk of queries, or of keys, from position `first` on.
template <class T, Widths W>
__device__ __forceinline__ void copy_queries(const Chunk<T, W>& to, const Args<T>& a, int b, int h,
                                             int first) {
  copy_chunk(to.q, a.q, b, h, first - a.size.shift, a.size.m, a.size.f);
  copy_chunk(to.g, a.g, b, h, first - a.size.shift, a.size.m, a.size.dv);
}
template <class T, Widths W>
__device__ __forceinline__ void copy_keys(const Chunk<T, W>& to, const Args<T>& a, int b, int kh,
                                          int first, const uint8_t* hidden) {
  copy_chunk(to.k, a.k, b, kh, first, a.size.n, a.size.f, hidden);
  copy_chunk(to.v, a.v, b, kh, first, a.size.n, a.size.dv, hidden);
}

/// The blocks of 16 positions that a warp's 16 rows are multiplied with.
struct BlockRange {
  int begin, end;
  __device__ bool has(int y) const { return y >= begin && y < end; }
};

/// d[y] += a bᵀ for the warp's rows of `a` and block first + y of `b`, if `range` has it. Calls
/// also(x, operand) for other products with the same operand, columns 16 x … of `a`.
template <int Unrolled, class Rows, int Blocks, class Also>
__device__ __forceinline__ void multiply_rows(float (&d)[Blocks][2][4], const Place& p,
                                              const Rows& a, const Rows& b, int first,
                                              const BlockRange& range, const Also& also) {
#pragma unroll(Unrolled)
  for (int x = 0; x < Rows::columns / 16; ++x) {
    const auto operand = rows_of<Side::left>(a, 16 * p.warp_row, 16 * x);
#pragma unroll
    for (int y = 0; y < Blocks; ++y)
      if (range.has(first + y))
        multiply(d[y], operand, rows_of<Side::right>(b, 16 * (first + y), 16 * x));
    also(x, operand);
  }
}

/// A warp's part of the state: S in 16 × 16 blocks, 64 features apart, and z.
template <class Memory>
struct State {
  using T = typename Memory::Element;
  static constexpr Widths W = Memory::widths;
  static constexpr bool in_tile = !Registers<T, W>::hold_state;
  static constexpr int down = W.features / 64, across = W.values / 32;
  static constexpr int held = in_tile ? 1 : down, parts = StateTile<T, W>::Area::parts;
  const StateTile<T, W> tile;     // S
  const typename Memory::Z line;  // z
  float s[held][across][2][4];
  float z[held][2];

  __device__ explicit State(const Memory& memory) : tile(memory.state()), line(memory.z()) {}

  __device__ static int feature(const Place& p, int j) { return 16 * (p.warp_row + 4 * j); }
  __device__ static int column(const Place& p, int c) { return p.half<W.values>(c); }

  /// Call f(j, c) for the blocks of S, f(j, h, feature) for the features of z.
  template <class F>
  __device__ static void for_each_block(F f) {
#pragma unroll
    for (int j = 0; j < down; ++j)
#pragma unroll
      for (int c = 0; c < across; ++c) f(j, c);
  }
  template <class F>
  __device__ static void for_each_z(const Place& p, F f) {
#pragma unroll
    for (int j = 0; j < down; ++j)
#pragma unroll
      for (int h = 0; h < 2; ++h) f(j, h, feature(p, j) + p.row + 8 * h);
  }
  /// Calls f(sum, feature, column) for the sums of a block that are within [F, Dv].
  template <class D, class F>
  __device__ static void for_each_sum(const Place& p, int j, int c, const Sizes& size, D& d, F f) {
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      const int row = feature(p, j) + p.row + i % 4 / 2 * 8,
                at = column(p, c) + i / 4 * 8 + p.column + i % 2;
      if (row < size.f && at < size.dv) f(d[i / 4][i % 4], row, at);
    }
  }

  /// Loads the state from memory [F, Dv + 1] (null: 0), and copies it to shared memory if `shares`.
  __device__ void load(const Place& p, const float* from, const Sizes& size, bool shares) {
    const int pitch = size.dv + 1;
    for_each_block([&](int j, int c) {
      float d[2][4] = {};
      if (from)
        for_each_sum(p, j, c, size, d,
                     [&](float& x, int row, int at) { x = from[row * pitch + at]; });
      if constexpr (in_tile)
        store_block(tile, feature(p, j), column(p, c), d);
      else
#pragma unroll
        for (int i = 0; i < 8; ++i) s[j][c][i / 4][i % 4] = d[i / 4][i % 4];
    });
    for_each_z(p, [&](int j, int h, int row) {
      const float x = from && row < size.f ? from[row * pitch + size.dv] : 0;
      if constexpr (!in_tile)
        z[j][h] = x;
      else if (p.owns_row())
        line.set(row, x);
    });
    if (shares) share(p);
  }
  __device__ void store(const Place& p, float* to, const Sizes& size) const {
    const int pitch = size.dv + 1;
    for_each_block([&](int j, int c) {
      const auto put = [&](const float& x, int row, int at) { to[row * pitch + at] = x; };
      if constexpr (in_tile) {
        float d[2][4] = {};
        add_block(d, tile, feature(p, j), column(p, c));
        for_each_sum(p, j, c, size, d, put);
      } else {
        for_each_sum(p, j, c, size, s[j][c], put);
      }
    });
    for_each_z(p, [&](int j, int h, int row) {
      if (row >= size.f || !p.owns_row()) return;
      if constexpr (in_tile)
        to[row * pitch + size.dv] = line.data[row];
      else
        to[row * pitch + size.dv] = z[j][h];
    });
  }
  /// Copies the state to shared memory, unless it is only there.
  __device__ void share(const Place& p) const {
    if constexpr (!in_tile) {
      for_each_block(
          [&](int j, int c) { store_block(tile, feature(p, j), column(p, c), s[j][c]); });
      for_each_z(p, [&](int j, int h, int row) {
        if (p.owns_row()) line.set(row, z[j][h]);
      });
    }
  }

  /// d += a S for features `row` … of S.
  __device__ void multiply_by(HalfRows<W.values>& d, const Place& p, const FragmentOf<T>& a,
                              int row) const {
#pragma unroll
    for (int y = 0; y < across; ++y)
#pragma unroll
      for (int part = parts - 1; part >= 0; --part)
        multiply(d[y / 2][y % 2], a,
                 columns_of<Side::right>(tile.of_part(part), row, column(p, y)));
  }
  /// d += a Sᵀ for columns `at` … of S.
  __device__ void multiply_by_transposed(HalfRows<W.features>& d, const Place& p,
                                         const FragmentOf<T>& a, int at) const {
#pragma unroll
    for (int y = 0; y < 2 * down; ++y)
#pragma unroll
      for (int part = parts - 1; part >= 0; --part)
        multiply(d[y / 2][y % 2], a,
                 rows_of<Side::right>(tile.of_part(part), p.half<W.features>(y), at));
  }

  /// Adds the contribution of a chunk: left(j, x, sums) returns the operand of features j and
  /// positions 16 x …, whose right operands are rows of `values`, and adds its contribution to z to
  /// `sums`, unless that is null. If the state is only in shared memory, first waits until all
  /// threads have read it.
  template <class ZSums, class F>
  __device__ void add(const Place& p, const typename Chunk<T, W>::Narrow& values, F left) {
    constexpr int steps = Registers<T, W>::steps, blocks = steps == 2 ? across : 1;
    if constexpr (in_tile) __syncthreads();
#pragma unroll
    for (int j = 0; j < down; ++j)
#pragma unroll
      for (int c0 = 0; c0 < across; c0 += blocks) {
        float sum[blocks][2][4] = {};
        ZSums z_sums;
#pragma unroll(steps == 2 ? 4 : 1)
        for (int x = 0; x < 4; ++x) {
          const auto a = left(j, x, c0 == 0 ? &z_sums : nullptr);
#pragma unroll
          for (int c = 0; c < blocks; ++c)
            multiply(sum[c], a, columns_of<Side::right>(values, 16 * x, column(p, c0 + c)));
        }
#pragma unroll
        for (int c = 0; c < blocks; ++c)
          if constexpr (in_tile)
            add_to_block(tile, feature(p, j), column(p, c0 + c), sum[c]);
          else
#pragma unroll
            for (int i = 0; i < 8; ++i) s[j][c0 + c][i / 4][i % 4] += sum[c][i / 4][i % 4];
        if (c0 == 0)
#pragma unroll
          for (int h = 0; h < 2; ++h) {
            const float x = z_sums.get(h);
            if constexpr (!in_tile)
              z[j][h] += x;
            else if (p.owns_row())
              line.data[feature(p, j) + p.row + 8 * h] += x;
          }
      }
  }
  /// Adds Kᵀ V and Kᵀ 1 of a chunk.
  __device__ void add_keys(const Place& p, const Chunk<T, W>& in) {
    add<RowSums<T>>(p, in.v, [&](int j, int x, RowSums<T>* sums) {
      const auto a = columns_of<Side::left>(in.k, 16 * x, feature(p, j));
      if (sums) sums->add(a);
      return a;
    });
  }
};

/// Launches kernel<SharedMemory>() for the widths of the inputs; grid: [blocks, segments].
template <SharedTiles Of, class T, class Kernel>
void launch_chunks(const char* op, int device, int64_t blocks, int segments, const Args<T>& args,
                   Kernel kernel) {
  with_widths(args.size.f, args.size.dv, [&]<Widths W>() {
    using Memory = SharedMemory<T, W, Of>;
    launch_with_shared(op, device, kernel.template operator()<Memory>(),
                       dim3(unsigned(blocks), unsigned(segments)), threads, Memory::bytes, args);
  });
}

}  // namespace stretto::cuda::linear
