// Reductions of rows other than sums: extremes and log-sum-exp; and running sums.
//
// Contiguous [rows, n], any n ≥ 1. A warp handles a short row, a block a long one. If there are
// few very long rows, they are split into chunks, whose extremes a second launch combines.
// Tested against the CPU.
#include "cuda/reduce.h"
#include "cuda/runtime/rows.cuh"

namespace stretto::cuda {
namespace {

/// The first NaN, or the first of the largest (smallest) values.
template <bool largest, class C>
struct Extreme {
  C value;
  int64_t index = INT64_MAX;  // nothing yet

  __device__ void meet(C v, int64_t i) {
    const bool is_nan = value != value, v_is_nan = v != v;
    const bool better = is_nan     ? v_is_nan && i < index
                        : v_is_nan ? true
                                   : index == INT64_MAX || (largest ? v > value : v < value) ||
                                         (v == value && i < index);
    if (better) {
      value = v;
      index = i;
    }
  }
};

template <int Threads, bool largest, class C>
__device__ inline Extreme<largest, C> combine(Extreme<largest, C> mine) {
  for (int lane = 16; lane > 0; lane /= 2) {
    const C value = __shfl_xor_sync(0xffffffffu, mine.value, lane);
    const int64_t index = __shfl_xor_sync(0xffffffffu, mine.index, lane);
    if (index != INT64_MAX) mine.meet(value, index);
  }
  if constexpr (Threads > 32) {
    __shared__ C values[Threads / 32];
    __shared__ int64_t indices[Threads / 32];
    __syncthreads();  // until the values of the last call have been read
    if (threadIdx.x % 32 == 0) {
      values[threadIdx.x / 32] = mine.value;
      indices[threadIdx.x / 32] = mine.index;
    }
    __syncthreads();
    for (int w = 0; w < Threads / 32; ++w)
      if (indices[w] != INT64_MAX) mine.meet(values[w], indices[w]);
  }
  return mine;
}

/// values, indices [rows, splits] of x [rows, n], each for `chunk` elements. Indices are read from
/// `from` if x itself consists of a previous launch's extremes.
template <class Shape, bool largest, class T>
__global__ void extreme_rows(T* values, int64_t* indices, const T* x, const int64_t* from,
                             int64_t items, int64_t splits, int64_t chunk, int64_t n) {
  using C = compute_t<T>;
#pragma unroll 1
  for (int64_t item = first_row(); item < items; item += row_step()) {
    const int64_t row = splits == 1 ? item : item / splits;
    const int64_t begin = splits == 1 ? 0 : (item - row * splits) * chunk;
    const int64_t count = begin + chunk < n ? chunk : n - begin;
    Extreme<largest, C> best = {};
    walk<Shape>(
        count, [&](int64_t i, C v) { best.meet(v, from ? from[row * n + begin + i] : begin + i); },
        x + row * n + begin);
    best = combine<Shape::Threads>(best);
    if (threadIdx.x == 0) {
      values[item] = cast<T>(best.value);
      indices[item] = best.index;
    }
  }
}

template <bool largest, class T>
void run_extremes(const Tensor& x, const Tensor& from, const Tensor& values,
                  const Tensor& indices) {
  const int64_t n = x.size(-1), rows = x.numel() / n;
  int64_t splits = std::min(ceil_div(1024, rows), ceil_div(n, 8192));
  const int64_t chunk = ceil_div(ceil_div(n, splits), 16) * 16;
  splits = ceil_div(n, chunk);
  Tensor some = values, at = indices;
  if (splits > 1) {
    some = empty({rows, splits}, options_of(values));
    at = empty({rows, splits}, options_of(indices));
  }
  const int64_t* given = data_or_null<int64_t>(from);
  choose_rows<T>(n, [&](auto chosen) {
    using Shape = RowShape<decltype(chosen)::Threads, decltype(chosen)::pack, 0>;
    const dim3 block = row_block<Shape::Threads>();
    launch("extremes", x.device().index, extreme_rows<Shape, largest, T>,
           blocks_for(rows * splits, block.y), block, some.data<T>(), at.data<int64_t>(),
           static_cast<const T*>(x.data<T>()), given, rows * splits, splits, chunk, n);
  });
  if (splits > 1) run_extremes<largest, T>(some, at, values, indices);
}

/// y [rows] = log Σ exp x [rows, n]
template <class Shape, class T>
__global__ void logsumexp_rows(T* y, const T* x, int64_t rows, int64_t n) {
  using C = compute_t<T>;
#pragma unroll 1
  for (int64_t row = first_row(); row < rows; row += row_step()) {
    PowerSum<C> sum;
    walk_packs<Shape>(
        n, [&](auto v) { sum.add(v); }, x + row * n);
    sum = combine<Shape::Threads>(sum);
    if (threadIdx.x == 0)
      y[row] =
          cast<T>(math::abs(sum.top) == C(INFINITY) ? sum.top : sum.top + math::log(sum.total));
  }
}

constexpr int scan_threads = 256, scan_each = 4;

/// y [rows, n] = running sums of x [rows, n], a block per row, tile by tile: threads sum four
/// elements each, then add the sum of everything to their left. With `packs` four are read at once.
template <class T, bool packs>
__global__ void cumsum_rows(T* y, const T* x, int64_t rows, int64_t n) {
  using Four = Pack<T, scan_each>;
  using C = compute_t<T>;
  __shared__ C totals[scan_threads / 32];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
#pragma unroll 1
  for (int64_t row = blockIdx.x; row < rows; row += gridDim.x) {
    C before = 0;  // the sum of everything to the left of the tile
#pragma unroll 1
    for (int64_t tile = 0; tile < n; tile += scan_threads * scan_each) {
      const int64_t first = row * n + tile + threadIdx.x * scan_each;
      const int64_t end = row * n + n;
      Four four = {};
      if constexpr (packs) {
        if (first < end) four = *reinterpret_cast<const Four*>(x + first);
      } else {
#pragma unroll
        for (int j = 0; j < scan_each; ++j)
          if (first + j < end) four.v[j] = x[first + j];
      }
      C v[scan_each];
#pragma unroll
      for (int j = 0; j < scan_each; ++j) {
        v[j] = cast<C>(four.v[j]);
        if (j > 0) v[j] = math::wrapping_add(v[j - 1], v[j]);
      }
      C mine = v[scan_each - 1], left = mine;  // of this thread; of its warp up to and including it
#pragma unroll
      for (int step = 1; step < 32; step *= 2) {
        const C other = __shfl_up_sync(0xffffffffu, left, step);
        if (lane >= step) left = math::wrapping_add(other, left);
      }
      const C whole = left;
      left = __shfl_up_sync(0xffffffffu, left, 1);
      if (lane == 0) left = 0;
      __syncthreads();  // the totals of the last tile have been read
      if (lane == 31) totals[warp] = whole;
      __syncthreads();
      C sum = before, tile_sum = 0;
#pragma unroll
      for (int w = 0; w < scan_threads / 32; ++w) {
        if (w == warp) sum = math::wrapping_add(before, tile_sum);
        tile_sum = math::wrapping_add(tile_sum, totals[w]);
      }
      left = math::wrapping_add(sum, left);
#pragma unroll
      for (int j = 0; j < scan_each; ++j) four.v[j] = cast<T>(math::wrapping_add(left, v[j]));
      if constexpr (packs) {
        if (first < end) *reinterpret_cast<Four*>(y + first) = four;
      } else {
#pragma unroll
        for (int j = 0; j < scan_each; ++j)
          if (first + j < end) y[first + j] = four.v[j];
      }
      before = math::wrapping_add(before, tile_sum);
    }
  }
}

/// As cumsum_rows(), along the middle of [outer, n, inner], a thread per column.
template <class T>
__global__ void cumsum_columns(T* y, const T* x, int64_t columns, int64_t n, Divider inner) {
  using C = compute_t<T>;
#pragma unroll 1
  for (uint64_t c = thread_index(); c < uint64_t(columns); c += thread_count()) {
    const uint64_t outer = inner.quotient(c);
    uint64_t at = outer * n * inner.size + (c - outer * inner.size);
    C sum = 0;
#pragma unroll 1
    for (int64_t i = 0; i < n; ++i, at += inner.size) {
      sum = math::wrapping_add(sum, cast<C>(x[at]));
      y[at] = cast<T>(sum);
    }
  }
}

}  // namespace

void extremes(const Tensor& input, bool largest, const Tensor& values, const Tensor& indices) {
  if (values.numel() == 0) return;
  const Tensor x = row_major(input);
  dispatch_number(x.dtype(), "extremes", [&]<class T>() {
    largest ? run_extremes<true, T>(x, {}, values, indices)
            : run_extremes<false, T>(x, {}, values, indices);
  });
}

void logsumexp(const Tensor& input, const Tensor& y) {
  if (y.numel() == 0) return;
  const Tensor x = row_major(input);
  const int64_t n = x.size(-1), rows = y.numel();
  dispatch_floating(x.dtype(), "logsumexp", [&]<class T>() {
    choose_rows<T>(n, [&](auto chosen) {
      using Shape = RowShape<decltype(chosen)::Threads, decltype(chosen)::pack, 0>;
      const dim3 block = row_block<Shape::Threads>();
      launch("logsumexp", x.device().index, logsumexp_rows<Shape, T>, blocks_for(rows, block.y),
             block, y.data<T>(), static_cast<const T*>(x.data<T>()), rows, n);
    });
  });
}

Tensor cumsum(const Tensor& x, int64_t d) {
  Tensor y = empty_like(x);
  if (x.numel() == 0) return y;
  const int64_t n = x.size(d);
  int64_t outer = 1, inner = 1;
  for (int64_t e = 0; e < d; ++e) outer *= x.size(e);
  for (int64_t e = d + 1; e < x.dim(); ++e) inner *= x.size(e);
  dispatch_number(x.dtype(), "cumsum", [&]<class T>() {
    const T* from = x.data<T>();
    if (inner == 1) {
      const bool packs = n % scan_each == 0 && aligned(from) && aligned(y.raw_data());
      launch("cumsum", x.device().index, packs ? cumsum_rows<T, true> : cumsum_rows<T, false>,
             blocks_for(outer, 1), scan_threads, y.data<T>(), from, outer, n);
    } else {
      launch("cumsum", x.device().index, cumsum_columns<T>, blocks_for(outer * inner, scan_threads),
             scan_threads, y.data<T>(), from, outer * inner, n, Divider(inner));
    }
  });
  return y;
}

}  // namespace stretto::cuda
