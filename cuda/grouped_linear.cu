// Products of rows, sorted by group, with the weights of their groups. With the rows r of group e,
//
//     output    y[r, o] = Σ_i x[r, i] w_e[o, i] + b_e[o]
//     input     d x[r, i] = Σ_o g[r, o] w_e[o, i]
//     weight    d w_e[o, i] = Σ_r g[r, o] x[r, i]      d b_e[o] = Σ_r g[r, o]
//
// as result[m, n] = Σ_k left[m, k] right[n, k], summed in ascending order of k (bf16: 16 at a time). A
// block computes a square tile of the result. Only the device reads the offsets of the groups: the
// grid has as many tiles of rows as any offsets need. The first tile of group e is ⌊offsets[e] / size⌋
// + e, which leaves enough for each group. With the offsets 0, 5, 9, 13 and tiles of 4 rows:
//
//     tile      0      1      2      3      4      5
//     group     0      0      1      1      2      2
//     rows     0-3     4     5-8   none   9-12   none
//
// bf16 rows of multiples of 16 bytes are multiplied by tensor cores; others, f32 and f64 by fused
// multiply-adds. Tested against the CPU.
#include "cuda/grouped_linear.h"
#include "cuda/runtime/fragments.cuh"

namespace stretto::cuda {
namespace {

constexpr const char* op = "grouped_linear";
constexpr int threads = 256;
constexpr int max_groups = 128;  // per launch: kernel parameters have at most 4 KB

enum class Product { output, input, weight };

template <class T>
struct Args {
  const int64_t* offsets;  // [groups + 1]
  const T *left, *right;   // x or g [T, ..]; for `weight` x [T, in]
  T *result, *sums;        // sums [groups, out]: d b, or null
  int in, out, groups;
  int row_tiles, column_tiles;  // row_tiles: for `weight`
  const T* weights[max_groups];
  const T* biases[max_groups];
};

/// A tile of the result, its operands from their first element on.
template <class T>
struct Task {
  const T *left, *right, *bias;
  T *result, *sums;
  int left_pitch, right_pitch, result_pitch;  // from one row in memory to the next
  int rows, columns, depth;                   // within the tile; no rows: nothing to compute
};

template <Product P, int Size, class T>
__device__ inline Task<T> task_of(const Args<T>& a) {
  const int tile = int(blockIdx.x) / a.column_tiles,
            column = int(blockIdx.x) % a.column_tiles * Size;
  Task<T> t = {};
  if constexpr (P == Product::weight) {
    const int e = tile / a.row_tiles, row = tile % a.row_tiles * Size;
    const int64_t begin = a.offsets[e], end = a.offsets[e + 1];
    t.left = a.left + begin * a.out + row, t.right = a.right + begin * a.in + column;
    t.left_pitch = a.out, t.right_pitch = t.result_pitch = a.in;
    t.result = a.result + (int64_t(e) * a.out + row) * a.in + column;
    t.sums = a.sums && column == 0 ? a.sums + int64_t(e) * a.out + row : nullptr;
    t.rows = min(Size, a.out - row), t.columns = min(Size, a.in - column);
    t.depth = int(end > begin ? end - begin : 0);
  } else {
    constexpr bool output = P == Product::output;
    const int inner = output ? a.in : a.out, outer = output ? a.out : a.in;
    const auto first_tile = [&](int e) { return a.offsets[e] / Size + e - a.offsets[0] / Size; };
    const int thread = int(threadIdx.x);
    const int e = __syncthreads_count(thread < a.groups && first_tile(thread) <= tile) - 1;
    const int64_t row = a.offsets[e] + (tile - first_tile(e)) * Size;
    t.rows = int(max(int64_t(0), min(int64_t(Size), a.offsets[e + 1] - row)));
    t.columns = min(Size, outer - column), t.depth = inner;
    t.left = a.left + row * inner, t.left_pitch = inner;
    t.right = a.weights[e] + (output ? int64_t(column) * inner : column), t.right_pitch = a.in;
    t.bias = a.biases[e] ? a.biases[e] + column : nullptr;
    t.result = a.result + row * outer + column, t.result_pitch = outer;
  }
  return t;
}

// Tensor cores: tiles of 128 × 128; each of 2 × 4 warps has 64 × 32 of them. The depth is staged in
// steps of 64, two of them ahead.

constexpr int tile_size = 128, step_depth = 64, stages = 3;

/// An operand in shared memory: [128, 64 of its depth] or, if it is stored `Transposed`, [64, 128].
template <bool Transposed>
struct Operand {
  using Tile = tile::Tile<BFloat16, Transposed ? tile_size : step_depth,
                          Transposed ? step_depth : tile_size>;
  Tile tile;

  __device__ void load(const BFloat16* from, int pitch, int count, int first, int depth) const {
    if constexpr (Transposed)
      tile::copy_rows<threads, step_depth>(tile.area(), {from, pitch, 0, count / 8}, first, depth);
    else
      tile::copy_rows<threads, tile_size>(tile.area(),
                                          {from + first, pitch, 0, (depth - first) / 8}, 0, count);
  }
  template <tile::Side S>
  __device__ tile::Fragment<1> block(int row, int k) const {
    if constexpr (Transposed)
      return tile::columns_of<S>(tile, k, row);
    else
      return tile::rows_of<S>(tile, row, k);
  }
};

/// The sums of a warp, [4 · 16 rows, 2 · 16 columns]; rows[i][2 h]: the sums of left's rows.
struct WarpSums {
  float d[4][2][2][4] = {}, rows[4][4] = {};
  const int row = int(threadIdx.x) / 128 * 64, column = int(threadIdx.x) / 32 % 4 * 32;

  template <bool WithRows, class Left, class Right>
  __device__ __forceinline__ void add(const Left& left, const Right& right) {
#pragma unroll
    for (int k = 0; k < step_depth; k += 16) {
      tile::Fragment<1> r[2];
#pragma unroll
      for (int n = 0; n < 2; ++n)
        r[n] = right.template block<tile::Side::right>(column + 16 * n, k);
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const auto l = left.template block<tile::Side::left>(row + 16 * i, k);
#pragma unroll
        for (int n = 0; n < 2; ++n) tile::multiply(d[i][n], l, r[n]);
        constexpr uint32_t ones = 0x3f803f80;
        if constexpr (WithRows) ptx::mma(rows[i], l.r[0], ones, ones);
      }
    }
  }
  __device__ __forceinline__ void add_bias(const BFloat16* bias, int columns) {
#pragma unroll
    for (int n = 0; n < 2; ++n)
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        const int c = column + 16 * n + 8 * j + tile::lane_index() % 4 * 2;
        if (c >= columns) continue;
        const uint32_t pair = *reinterpret_cast<const uint32_t*>(bias + c);
        const float b[2] = {__uint_as_float(pair << 16), __uint_as_float(pair & 0xffff0000u)};
#pragma unroll
        for (int i = 0; i < 4; ++i)
#pragma unroll
          for (int x = 0; x < 4; ++x) d[i][n][j][x] += b[x % 2];
      }
  }
  __device__ __forceinline__ void store(const Task<BFloat16>& t) const {
    constexpr float by[2] = {1, 1};
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      BFloat16* to[2];
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const int r = row + 16 * i + 8 * h + tile::lane_index() / 4;
        to[h] = r < t.rows ? t.result + int64_t(r) * t.result_pitch : nullptr;
        if (t.sums && column == 0 && r < t.rows && tile::lane_index() % 4 == 0)
          t.sums[r] = cast<BFloat16>(rows[i][2 * h]);
      }
      tile::store_sums(to, d[i], by, column, t.columns);
    }
  }
};

/// A tile of the result per block, by tensor cores
template <Product P>
__global__ void __launch_bounds__(threads, 2)
    grouped_products(const __grid_constant__ Args<BFloat16> a) {
  extern __shared__ __align__(1024) char bytes[];
  using Left = Operand<P == Product::weight>;
  using Right = Operand<P != Product::output>;
  const Task<BFloat16> t = task_of<P, tile_size>(a);
  if (t.rows <= 0) return;
  const auto left = [&](int s) { return Left{{bytes + s % stages * Left::Tile::bytes}}; };
  const auto right = [&](int s) {
    return Right{{bytes + stages * Left::Tile::bytes + s % stages * Right::Tile::bytes}};
  };
  const int steps = (t.depth + step_depth - 1) / step_depth;
  const auto load = [&](int s) {
    if (s < steps) {
      left(s).load(t.left, t.left_pitch, t.rows, s * step_depth, t.depth);
      right(s).load(t.right, t.right_pitch, t.columns, s * step_depth, t.depth);
    }
    ptx::commit();
  };
  WarpSums sums;
  const bool with_rows = P == Product::weight && t.sums && sums.column == 0;
  load(0), load(1);
#pragma unroll 1
  for (int s = 0; s < steps; ++s) {
    ptx::wait<1>();
    __syncthreads();  // step s has arrived, and step s − 1 has been read
    load(s + 2);
    if (with_rows)
      sums.add<true>(left(s), right(s));
    else
      sums.add<false>(left(s), right(s));
  }
  if (t.bias) sums.add_bias(t.bias, t.columns);
  sums.store(t);
}

// Fused multiply-adds: tiles of 64 × 64; thread (x, y) of 16 × 16 has rows 2 y, 2 y + 1, 2 y + 32,
// 2 y + 33 and columns 2 x, 2 x + 1, 2 x + 32, 2 x + 33. The depth is staged in steps of 16.

constexpr int small_tile = 64, small_step = 16;

/// An operand in shared memory, [16 of its depth, 64]. The width avoids bank conflicts in f32, and
/// keeps pairs aligned.
template <class T, bool Transposed>
struct Staged {
  using C = compute_t<T>;
  static constexpr int width = small_tile + 2, each = small_tile * small_step / threads;
  C (&at)[small_step][width];
  T next[each];

  /// The row and the step that a thread loads: neighboring threads load neighboring elements.
  __device__ static int row(int i) {
    const int x = int(threadIdx.x);
    return Transposed ? x % small_tile : x / small_step + i * (threads / small_step);
  }
  __device__ static int step(int i) {
    const int x = int(threadIdx.x);
    return Transposed ? x / small_tile + i * (threads / small_tile) : x % small_step;
  }
  __device__ void load(const T* from, int pitch, int count, int first, int depth) {
#pragma unroll
    for (int i = 0; i < each; ++i) {
      const int r = row(i), k = first + step(i);
      const int64_t place = Transposed ? int64_t(k) * pitch + r : int64_t(r) * pitch + k;
      next[i] = r < count && k < depth ? from[place] : T();
    }
  }
  __device__ void store() const {
#pragma unroll
    for (int i = 0; i < each; ++i) at[step(i)][row(i)] = cast<C>(next[i]);
  }
  __device__ void read(C (&to)[4], int k, int first) const {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const auto pair = *reinterpret_cast<const Pack<C, 2>*>(&at[k][first + 32 * i]);
      to[2 * i] = pair.v[0], to[2 * i + 1] = pair.v[1];
    }
  }
};

/// A tile of the result per block, by fused multiply-adds
template <class T, Product P>
__global__ void __launch_bounds__(threads)
    grouped_multiply_adds(const __grid_constant__ Args<T> a) {
  using C = compute_t<T>;
  using Left = Staged<T, P == Product::weight>;
  using Right = Staged<T, P != Product::output>;
  __shared__ __align__(16) C memory[2][small_step][Left::width];
  const Task<T> t = task_of<P, small_tile>(a);
  if (t.rows <= 0) return;
  Left left{memory[0]};
  Right right{memory[1]};
  const int x = int(threadIdx.x) % 16 * 2, y = int(threadIdx.x) / 16 * 2;
  const auto load = [&](int first) {
    left.load(t.left, t.left_pitch, t.rows, first, t.depth);
    right.load(t.right, t.right_pitch, t.columns, first, t.depth);
  };
  C d[4][4] = {}, sums[4] = {};
  load(0);
#pragma unroll 1
  for (int first = 0; first < t.depth; first += small_step) {
    __syncthreads();  // the last step has been read
    left.store(), right.store();
    __syncthreads();
    load(first + small_step);
#pragma unroll
    for (int k = 0; k < small_step; ++k) {
      C l[4], r[4];
      left.read(l, k, y), right.read(r, k, x);
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        if (P == Product::weight) sums[i] += l[i];
#pragma unroll
        for (int j = 0; j < 4; ++j) d[i][j] += l[i] * r[j];
      }
    }
  }
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const int row = y + i / 2 * 32 + i % 2;
    if (row >= t.rows) continue;
    if (t.sums && x == 0) t.sums[row] = cast<T>(sums[i]);
#pragma unroll
    for (int j = 0; j < 4; j += 2) {
      const int column = x + 16 * j;
      T* const to = t.result + int64_t(row) * t.result_pitch + column;
      Pack<T, 2> pair;
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        const bool has_bias = t.bias && column + e < t.columns;
        pair.v[e] = cast<T>(d[i][j + e] + (has_bias ? cast<C>(t.bias[column + e]) : C(0)));
      }
      if (t.result_pitch % 2 == 0) {
        if (column < t.columns) *reinterpret_cast<Pack<T, 2>*>(to) = pair;
      } else {
#pragma unroll
        for (int e = 0; e < 2; ++e)
          if (column + e < t.columns) to[e] = pair.v[e];
      }
    }
  }
}

/// Launches the product for up to max_groups groups at a time. `rows`: T.
template <Product P, class T>
void run(Args<T> a, int64_t rows, int64_t groups, const Tensors& weights, const Tensors& biases,
         int device) {
  bool whole = a.in % 8 == 0 && a.out % 8 == 0 && aligned(a.left) && aligned(a.right);
  for (const Tensor& w : weights) whole = whole && aligned(w.raw_data());
  const bool cores = std::is_same_v<T, BFloat16> && whole;
  const int size = cores ? tile_size : small_tile;
  a.row_tiles = int(ceil_div(a.out, size));
  a.column_tiles = int(std::max<int64_t>(1, ceil_div(P == Product::output ? a.out : a.in, size)));
  for (int64_t first = 0; first < groups; first += max_groups) {
    a.groups = int(std::min<int64_t>(max_groups, groups - first));
    for (size_t i = 0; i < size_t(a.groups) && P != Product::weight; ++i) {
      a.weights[i] = weights[size_t(first) + i].data<T>();
      a.biases[i] = biases.empty() ? nullptr : biases[size_t(first) + i].data<T>();
    }
    const int64_t tiles =
        P == Product::weight ? int64_t(a.groups) * a.row_tiles : rows / size + a.groups;
    check(tiles * a.column_tiles < int64_t(1) << 31, op, "got ", rows, " rows of ", a.in, " and ",
          a.out, " features; on CUDA at most 2^31 tiles");
    const auto grid = unsigned(tiles * a.column_tiles);
    if constexpr (std::is_same_v<T, BFloat16>) {
      constexpr int64_t bytes = 2 * stages * tile_size * step_depth * sizeof(BFloat16);
      if (cores) launch_with_shared(op, device, grouped_products<P>, grid, threads, bytes, a);
    }
    if (!cores) launch(op, device, grouped_multiply_adds<T, P>, grid, threads, a);
    a.offsets += a.groups;
    if (P != Product::weight) continue;
    a.result += int64_t(a.groups) * a.out * a.in;
    if (a.sums) a.sums += int64_t(a.groups) * a.out;
  }
}

template <class T>
Args<T> args_of(const Tensor& offsets, const Tensor& left, const Tensor& result) {
  Args<T> a = {};
  a.offsets = offsets.data<int64_t>(), a.left = left.data<T>(), a.result = result.data<T>();
  return a;
}

}  // namespace

Tensor grouped_linear(const Tensor& x, const Tensors& weights, const Tensors& biases,
                      const Tensor& offsets, bool transposed) {
  const auto dense = [](Tensors all) {
    for (Tensor& t : all) t = t.detach().contiguous();
    return all;
  };
  const Tensors w = dense(weights), b = dense(biases);
  const int64_t out = w[0].size(0), in = w[0].size(1), rows = x.size(0);
  Tensor y = empty_like(x, {rows, transposed ? in : out});
  if (y.numel() == 0) return y;
  dispatch_floating(x.dtype(), op, [&]<class T>() {
    Args<T> a = args_of<T>(offsets, x, y);
    a.in = int(in), a.out = int(out);
    const auto launcher = transposed ? run<Product::input, T> : run<Product::output, T>;
    launcher(a, rows, int64_t(w.size()), w, b, x.device().index);
  });
  return y;
}

Tensor grouped_weight_gradients(const Tensor& g, const Tensor& x, const Tensor& offsets,
                                const Tensor& biases) {
  const int64_t groups = offsets.numel() - 1, out = g.size(1), in = x.size(1);
  Tensor y = empty_like(g, {groups, out, in});
  if (out == 0 || (in == 0 && !biases.defined())) return y;
  dispatch_floating(g.dtype(), op, [&]<class T>() {
    Args<T> a = args_of<T>(offsets, g, y);
    a.right = x.data<T>(), a.sums = data_or_null<T>(biases);
    a.in = int(in), a.out = int(out);
    run<Product::weight, T>(a, g.size(0), groups, {}, {}, g.device().index);
  });
  return y;
}

}  // namespace stretto::cuda
