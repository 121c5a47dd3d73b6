// Layer norm and RMS norm.
//
// y = x̂ · w + b with x̂ = ((x − shift) − rest) · scale, where shift + rest is the row's mean or 0
// (rest is 0 unless the mean is large, cuda/norm.h), scale = 1/√(mean ((x − shift) − rest)² + eps).
// dx = scale · (ĝ − mean ĝ − x̂ · mean ĝ·x̂) with ĝ = g · w; only layer norm has the second term.
// x may be a sum, onto + dropout(x), which is then written, too: its rounded elements are normalized.
// Contiguous [rows, width]; statistics in f32 (f64 for f64). A row that fits in registers
// (cuda/runtime/rows.cuh) is read once. dw = Σ g·x̂ and db = Σ g: each block sums its rows, in
// order, into one partial row of each; one launch adds the partial rows. Tested against the CPU's
// formula in f64.
#include "cuda/norm.h"
#include "cuda/runtime/copy.h"
#include "cuda/runtime/draws.cuh"
#include "cuda/runtime/rows.cuh"

namespace stretto::cuda {
namespace {

constexpr int partial_rows = 2 * planned_sms;

/// True if rows of this shape can be a sum with a branch: 4 or 8 elements share their draws.
template <class Shape, class T>
constexpr bool takes_branch = Shape::packs > 0 && Shape::pack >= 4;

/// ResidualBranch in a kernel; rows as x.
template <class T>
struct Branch {
  const T* onto;
  T* sum;
  Drop<compute_t<T>> drop;
};

/// Dropout of a row that begins with pack `group` of the tensor.
template <class Shape, class T>
__device__ inline void drop_row(RowInRegisters<Shape, T>& row, const Drop<compute_t<T>>& drop,
                                uint64_t group, int width) {
  constexpr int V = Shape::pack;
#pragma unroll
  for (int p = 0; p < Shape::packs; ++p) {
    const int first = (p * Shape::Threads + int(threadIdx.x)) * V;
    if (first >= width) continue;
    compute_t<T> pack[V];
#pragma unroll
    for (int j = 0; j < V; ++j) pack[j] = row.v[p * V + j];
    drop_group(pack, drop, group + uint64_t(p * Shape::Threads + threadIdx.x));
#pragma unroll
    for (int j = 0; j < V; ++j) row.v[p * V + j] = pack[j];
  }
}

/// The rows of x, and what forward writes for each: means [2, rows] (or null) and scale [rows].
template <class C>
struct NormRows {
  C* means;
  C* scale;
  int64_t count, width;
  C eps;
};

/// y [rows, width], means and scale = x [rows, width]; w, b [width] or null; with Adds, the
/// branch's rows are x, onto and sum [rows, width]
template <bool Adds, class Shape, class T>
__global__ void norm_rows(T* y, const T* x, const T* w, const T* b, Branch<T> branch,
                          NormRows<compute_t<T>> of) {
  using C = compute_t<T>;
  constexpr int Threads = Shape::Threads;
  C *const means = of.means, *const scale = of.scale;
  const int64_t rows = of.count, width = of.width;
  const C eps = of.eps;
  const C share = C(1) / C(width);
  auto scaled = [&](C unit, C gain, C bias) {
    if (w) unit *= gain;
    return b ? unit + bias : unit;
  };
#pragma unroll 1
  for (int64_t row = first_row(); row < rows; row += row_step()) {
    const T* in = x + row * width;
    C mean = 0, rest = 0, power = 0, variance, factor;
    auto square = [&](C v) {
      const C d = (v - mean) - rest;
      power += d * d;
    };
    auto is_far = [&] { return means && mean * mean > C(far_mean) * variance; };
    // mean and rest belong to a whole row: all threads that share it take the same branch.
    C first = means && !Adds ? cast<C>(in[0]) : C(0);
    auto from_first = [&](C v) { rest += (v - mean) - (first - mean); };
    auto whole_rest = [&] { rest = (first - mean) + combine<Threads>(rest, Sum()) * share; };
    auto whole_variance = [&] { variance = combine<Threads>(power, Sum()) * share + eps; };
    if constexpr (Shape::packs > 0) {
      RowInRegisters<Shape, T> v;
      v.load(in, int(width));
      if constexpr (Adds) {
        drop_row(v, branch.drop, uint64_t(row * width) / Shape::pack, int(width));
        v.store(
            branch.sum + row * width, int(width),
            [&](int k, C onto) { return v.v[k] = cast<C>(cast<T>(v.v[k] + onto)); },
            branch.onto + row * width);
      }
      if (means) {
        v.each(int(width), [&](int k) { mean += v.v[k]; });
        mean = combine<Threads>(mean, Sum()) * share;
      }
      v.each(int(width), [&](int k) { square(v.v[k]); });
      whole_variance();
      if (is_far()) {
        if constexpr (Adds) first = combine<Threads>(threadIdx.x == 0 ? v.v[0] : C(0), Sum());
        v.each(int(width), [&](int k) { from_first(v.v[k]); });
        whole_rest();
        power = 0;
        v.each(int(width), [&](int k) { square(v.v[k]); });
        whole_variance();
      }
      factor = C(1) / math::sqrt(variance);
      v.store(
          y + row * width, int(width),
          [&](int k, C gain, C bias) {
            return scaled(((v.v[k] - mean) - rest) * factor, gain, bias);
          },
          w, b);
    } else {
      if (means) {
        walk<Shape>(
            width, [&](int64_t, C v) { mean += v; }, in);
        mean = combine<Threads>(mean, Sum()) * share;
      }
      auto squares = [&] {
        power = 0;
        walk<Shape>(
            width, [&](int64_t, C v) { square(v); }, in);
        whole_variance();
      };
      squares();
      if (is_far()) {
        walk<Shape>(
            width, [&](int64_t, C v) { from_first(v); }, in);
        whole_rest();
        squares();
      }
      factor = C(1) / math::sqrt(variance);
      map_row<Shape>(
          y + row * width, width,
          [&](int64_t i, C v) {
            return scaled(((v - mean) - rest) * factor, w ? cast<C>(w[i]) : C(0),
                          b ? cast<C>(b[i]) : C(0));
          },
          in);
    }
    if (threadIdx.x == 0) {
      if (means) means[row] = mean, means[rows + row] = rest;
      scale[row] = factor;
    }
  }
}

/// Sums `part` of each thread over the block's warps and stores the result in partial [width]. With
/// several warps, a barrier must separate two calls.
template <class Shape, class C>
__device__ inline void store_partial(C* partial, const C (&part)[Shape::packs * Shape::pack],
                                     int width) {
  constexpr int V = Shape::pack, K = Shape::packs, Threads = Shape::Threads;
  constexpr int height = Threads == 32 ? 8 : 1;
  __shared__ C parts[height][Threads == 32 ? Threads * K * V : 1];
  if constexpr (height > 1) {
#pragma unroll
    for (int k = 0; k < K * V; ++k) parts[threadIdx.y][k * Threads + threadIdx.x] = part[k];
    __syncthreads();
    if (threadIdx.y > 0) return;
  }
  constexpr int S = V == 1 ? 1 : 16 / int(sizeof(C));  // elements per store
#pragma unroll
  for (int p = 0; p < K; ++p) {
    Pack<C, S> sum[V / S];
#pragma unroll
    for (int j = 0; j < V; ++j) {
      C& s = sum[j / S].v[j % S] = part[p * V + j];
      if constexpr (height > 1) {
#pragma unroll
        for (int y = 1; y < height; ++y) s += parts[y][(p * V + j) * Threads + threadIdx.x];
      }
    }
    const int thread = int(threadIdx.x), first = (p * Threads + thread) * V;
    if constexpr (V == S) {
      if (first < width) *reinterpret_cast<Pack<C, S>*>(partial + first) = sum[0];
    } else {  // two stores: neighboring threads fill a sector, first with the even one's elements
      static_assert(V == 2 * S);
      const bool odd = thread % 2 == 1;
      const int even = odd ? first - V : first;
      Pack<C, S> left, right;
#pragma unroll
      for (int j = 0; j < S; ++j) {
        const C a = sum[0].v[j], b = sum[1].v[j];
        const C other = __shfl_xor_sync(0xffffffffu, odd ? a : b, 1);
        left.v[j] = odd ? other : a;
        right.v[j] = odd ? b : other;
      }
      Pack<C, S>* const to = reinterpret_cast<Pack<C, S>*>(partial + even) + odd;
      if (even < width) to[0] = left;
      if (even + V < width) to[2] = right;
    }
  }
}

/// The number of blocks of norm_backward_rows that a multiprocessor has registers for.
template <class Shape, class T>
constexpr int backward_blocks() {
  const bool few = Shape::pack > 1 && Shape::packs * Shape::pack <= 16;
  return few && sizeof(compute_t<T>) == 4 ? 2 : 1;
}

/// dx [rows, width], `onto` [rows, width] or null; dw, db [gridDim.x, width] or null. There are few
/// blocks, so that there are few partial sums; the next row is read while one is computed. With
/// Drops, branch.sum [rows, width] is the gradient of the branch.
template <bool Drops, class Shape, class T>
__global__ void __launch_bounds__(256, backward_blocks<Shape, T>())
    norm_backward_rows(T* dx, compute_t<T>* dw, compute_t<T>* db, const T* x, const T* w,
                       const T* g, const T* onto, Branch<T> branch, NormRows<compute_t<T>> of) {
  using C = compute_t<T>;
  constexpr int Threads = Shape::Threads;
  const C *const means = of.means, *const scale = of.scale;
  const int64_t rows = of.count, width = of.width;
  const C share = C(1) / C(width);
  if constexpr (Shape::packs > 0) {
    constexpr int N = Shape::packs * Shape::pack;
    C sum_w[N] = {}, sum_b[N] = {};
    RowPacks<Shape, T> next_x, next_g;
    C next_mean = 0, next_rest = 0, next_factor;
    auto read = [&](int64_t row) {
      if (row >= rows) return;
      next_x.load(x + row * width, int(width));
      next_g.load(g + row * width, int(width));
      if (means) next_mean = means[row], next_rest = means[rows + row];
      next_factor = scale[row];
    };
    read(first_row());
#pragma unroll 1
    for (int64_t row = first_row(); row < rows; row += row_step()) {
      RowInRegisters<Shape, T> unit, slope;
      unit.set(next_x);
      slope.set(next_g);
      const C mean = next_mean, rest = next_rest, factor = next_factor;
      if constexpr (!Drops) read(row + row_step());
      C mean_g = 0, mean_gx = 0;
      unit.each(
          int(width),
          [&](int k, C gain) {
            unit.v[k] = ((unit.v[k] - mean) - rest) * factor;
            sum_w[k] += slope.v[k] * unit.v[k];
            sum_b[k] += slope.v[k];
            if (w) slope.v[k] *= gain;
            mean_g += slope.v[k];
            mean_gx += slope.v[k] * unit.v[k];
          },
          w);
      mean_g = means ? combine<Threads>(mean_g, Sum()) * share : C(0);
      mean_gx = combine<Threads>(mean_gx, Sum()) * share;
      slope.store(
          dx + row * width, int(width),
          [&](int k, C earlier) {
            const C d = factor * (slope.v[k] - mean_g - unit.v[k] * mean_gx) + earlier;
            if constexpr (Drops) slope.v[k] = cast<C>(cast<T>(d));
            return d;
          },
          onto ? onto + row * width : nullptr);
      if constexpr (Drops) {
        read(row + row_step());  // not earlier: there are too few registers
        drop_row(slope, branch.drop, uint64_t(row) * (uint32_t(width) / Shape::pack), int(width));
        slope.store(branch.sum + row * width, int(width), [&](int k) { return slope.v[k]; });
      }
    }
    if (dw) store_partial<Shape>(dw + blockIdx.x * width, sum_w, int(width));
    if (Threads == 32 && dw && db) __syncthreads();
    if (db) store_partial<Shape>(db + blockIdx.x * width, sum_b, int(width));
  } else {
    C *own_w = dw ? dw + blockIdx.x * width : nullptr,
      *own_b = db ? db + blockIdx.x * width : nullptr;
#pragma unroll 1
    for (int64_t row = first_row(); row < rows; row += row_step()) {
      const T *in = x + row * width, *gradient = g + row * width;
      const C mean = means ? means[row] : C(0), rest = means ? means[rows + row] : C(0),
              factor = scale[row];
      const bool first = row == first_row();
      C mean_g = 0, mean_gx = 0;
      walk<Shape>(
          width,
          [&](int64_t i, C v, C slope) {
            const C unit = ((v - mean) - rest) * factor;
            if (own_w) own_w[i] = first ? slope * unit : own_w[i] + slope * unit;
            if (own_b) own_b[i] = first ? slope : own_b[i] + slope;
            if (w) slope *= cast<C>(w[i]);
            mean_g += slope;
            mean_gx += slope * unit;
          },
          in, gradient);
      mean_g = means ? combine<Threads>(mean_g, Sum()) * share : C(0);
      mean_gx = combine<Threads>(mean_gx, Sum()) * share;
      map_row<Shape>(
          dx + row * width, width,
          [&](int64_t i, C v, C slope) {
            if (w) slope *= cast<C>(w[i]);
            const C earlier = onto ? cast<C>(onto[row * width + i]) : C(0);
            return factor * (slope - mean_g - ((v - mean) - rest) * factor * mean_gx) + earlier;
          },
          in, gradient);
    }
  }
}

/// first, second [width]: the sums of the rows of parts [gridDim.y, count, width], as many as there are
template <class T>
__global__ void add_partial_rows(T* first, T* second, const compute_t<T>* parts, int count,
                                 int64_t width) {
  using C = compute_t<T>;
  __shared__ C sums[8][32];
  const int64_t column = int64_t(blockIdx.x) * 32 + threadIdx.x;
  C sum = 0;
  if (column < width) {
    const C* from = parts + int64_t(blockIdx.y) * count * width + column;
#pragma unroll 4
    for (int row = int(threadIdx.y); row < count; row += 8) sum += from[row * width];
  }
  sums[threadIdx.y][threadIdx.x] = sum;
  __syncthreads();
  if (threadIdx.y > 0 || column >= width) return;
#pragma unroll
  for (int y = 1; y < 8; ++y) sum += sums[y][threadIdx.x];
  (blockIdx.y == 0 ? first : second)[column] = cast<T>(sum);
}

Tensor row_major_or_none(const Tensor& x) { return x.defined() ? row_major(x) : x; }
template <class T>
Branch<T> branch_of(const ResidualBranch& b, int device) {
  if (!b.sum.defined()) return {};
  const DrawKey key = b.below > 0 ? draw_key(b.key, device) : DrawKey{b.key};
  return {data_or_null<T>(b.onto), b.sum.data<T>(), {key, b.below, compute_t<T>(b.factor)}};
}

}  // namespace

Tensor norm(const Tensor& input, const Tensor& weight, const Tensor& bias, double eps,
            const Tensor& means, const Tensor& scale, const ResidualBranch& of_input) {
  const Tensor x = row_major(input), w = row_major_or_none(weight), b = row_major_or_none(bias);
  ResidualBranch given = of_input;
  given.onto = row_major_or_none(given.onto);
  Tensor y = empty_like(x);
  if (x.numel() == 0) return y;
  const int64_t width = x.size(-1), rows = x.numel() / width;
  dispatch_floating(x.dtype(), "norm", [&]<class T>() {
    using C = compute_t<T>;
    choose_rows<T>(width, [&](auto shape) {
      using Shape = decltype(shape);
      const dim3 block = row_block<Shape::Threads>();
      const Branch<T> branch = branch_of<T>(given, x.device().index);
      const auto kernel = [&] {
        if constexpr (takes_branch<Shape, T>)
          if (branch.sum) return norm_rows<true, Shape, T>;
        return norm_rows<false, Shape, T>;
      }();
      launch("norm", x.device().index, kernel, blocks_for(rows, block.y), block, y.data<T>(),
             static_cast<const T*>(x.data<T>()), data_or_null<T>(w), data_or_null<T>(b), branch,
             NormRows<C>{data_or_null<C>(means), scale.data<C>(), rows, width, C(eps)});
    });
  });
  return y;
}

NormGradients norm_backward(const NormSaved& saved, const Tensor& gradient, const Tensor& pending,
                            bool want_dw, bool want_db, const ResidualBranch& given) {
  const Tensor x = row_major(saved.x), g = row_major(gradient), w = row_major_or_none(saved.weight),
               onto = row_major_or_none(pending);
  NormGradients to{.dx = empty_like(x)};
  const int64_t width = x.size(-1), rows = saved.scale.numel(), sums = int64_t(want_dw) + want_db;
  if (want_dw) to.dw = empty({width}, options_of(x));
  if (want_db) to.db = empty({width}, options_of(x));
  if (x.numel() == 0) {
    if (want_dw) fill(to.dw, 0);
    if (want_db) fill(to.db, 0);
    return to;
  }
  dispatch_floating(x.dtype(), "norm_backward", [&]<class T>() {
    using C = compute_t<T>;
    choose_rows<T>(width, [&](auto shape) {
      using Shape = decltype(shape);
      const dim3 block = row_block<Shape::Threads>();
      const int64_t blocks = std::min<int64_t>(ceil_div(rows, block.y), partial_rows);
      const Tensor parts = empty({sums, blocks, width}, options_of(saved.scale));
      C* const partial = parts.data<C>();
      const Branch<T> branch = branch_of<T>(given, x.device().index);
      const auto kernel = [&] {
        if constexpr (takes_branch<Shape, T>)
          if (branch.sum) return norm_backward_rows<true, Shape, T>;
        return norm_backward_rows<false, Shape, T>;
      }();
      launch("norm_backward", x.device().index, kernel, unsigned(blocks), block, to.dx.data<T>(),
             want_dw ? partial : nullptr, want_db ? partial + (sums - 1) * blocks * width : nullptr,
             static_cast<const T*>(x.data<T>()), data_or_null<T>(w),
             static_cast<const T*>(g.data<T>()), data_or_null<T>(onto), branch,
             NormRows<C>{data_or_null<C>(saved.means), saved.scale.data<C>(), rows, width});
      if (sums == 0) return;
      launch("norm_backward", x.device().index, add_partial_rows<T>,
             dim3(unsigned(ceil_div(width, 32)), unsigned(sums)), dim3(32, 8),
             (want_dw ? to.dw : to.db).data<T>(), data_or_null<T>(to.db),
             static_cast<const C*>(partial), int(blocks), width);
    });
  });
  return to;
}

bool norm_takes_branch(int64_t width, DType dtype) {
  return dispatch_floating(dtype, "norm", [&]<class T>() {
    bool takes = false;
    choose_rows<T>(width, [&](auto shape) { takes = takes_branch<decltype(shape), T>; });
    return takes;
  });
}

}  // namespace stretto::cuda
