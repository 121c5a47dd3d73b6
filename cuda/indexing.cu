// Selecting and adding by index.
//
// Slices are moved 16 bytes at a time if they are multiples of that. Sums have one owner each and a
// fixed order, without atomics: ids are sorted stably with their positions (cuda/sort.h), so that
// all contributions to a row form one segment, whose ends a binary search finds. place() splits
// long segments at multiples of 256 positions: warps sum the part in each further chunk, and the
// row's warp adds these sums in order. If there are few rows, each is split into strips of
// columns, with a warp each. place() accumulates in f64, as on the CPU: some rows receive a million contributions.
// Tested against the CPU: take and scatter_add are bit-identical.
#include "cuda/indexing.h"
#include "cuda/runtime/common.cuh"
#include "cuda/runtime/copy.h"
#include "cuda/sort.h"

namespace stretto::cuda {
namespace {

constexpr int threads = 256;
constexpr int64_t piece = 256;
constexpr int64_t short_column = 256;  // the largest length of a column that one thread adds

/// out [outer, n, inner] = x [outer, rows, inner] at ids [n]
template <class Word>
__global__ void take_slices(Word* out, const Word* x, const int64_t* ids, uint64_t total,
                            uint64_t rows, Divider n, Divider inner) {
#pragma unroll 1
  for (uint64_t i = thread_index(); i < total; i += thread_count()) {
    const uint64_t slice = inner.quotient(i), outer = n.quotient(slice);
    const uint64_t row = outer * rows + uint64_t(ids[slice - outer * n.size]);
    out[i] = x[row * inner.size + (i - slice * inner.size)];
  }
}

/// The first index in sorted [n] with a value that is not less than `value`.
__device__ inline int64_t first_of(const int64_t* sorted, int64_t n, int64_t value) {
  int64_t low = 0, high = n;
  while (low < high) {
    const int64_t middle = (low + high) / 2;
    if (sorted[middle] < value) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return low;
}

/// How warps share rows of `inner` columns: `count` strips of `width` columns.
struct Strips {
  Divider per_row;
  int64_t width, inner, count;

  __device__ int64_t row(int64_t strip) const { return int64_t(per_row.quotient(uint64_t(strip))); }
  /// Calls f(c) for the columns of a strip that the lane has.
  template <class F>
  __device__ void each(int64_t strip, const F& f) const {
    const int64_t first = (strip - row(strip) * int64_t(per_row.size)) * width;
    const int64_t end = first + width < inner ? first + width : inner;
#pragma unroll 1
    for (int64_t c = first + threadIdx.x; c < end; c += 32) f(c);
  }
};
/// Few rows have many strips, so that there are enough warps to hide the latency of reads; many
/// rows have one, as each warp searches for its segment.
Strips strips_of(int64_t rows, int64_t inner) {
  const int64_t columns = ceil_div(inner, 32);
  const int64_t strips = std::clamp<int64_t>(128 * planned_sms / rows, 1, columns);
  const int64_t width = ceil_div(columns, strips) * 32, per_row = ceil_div(inner, width);
  return {Divider(per_row), width, inner, rows * per_row};
}

/// Σ g [n, inner] over the positions order[begin … end), in column c
template <class T>
__device__ inline double sum_positions(const T* g, const uint32_t* order, int64_t begin,
                                       int64_t end, int64_t inner, int64_t c) {
  double sum = 0;
#pragma unroll 8
  for (int64_t i = begin; i < end; ++i) sum += cast<double>(g[int64_t(order[i]) * inner + c]);
  return sum;
}

/// pieces [outer, chunks, inner]: Σ g over the positions of a chunk whose id is that of its first
/// position, a warp per strip. Only for chunks that begin within a segment: the position before has
/// the same id.
template <class T>
__global__ void reduce_scatter(double* pieces, const T* g, const int64_t* sorted,
                               const uint32_t* order, Divider chunks, int64_t n,
                               const __grid_constant__ Strips strips) {
#pragma unroll 1
  for (int64_t strip = first_row(); strip < strips.count; strip += row_step()) {
    const int64_t chunk = strips.row(strip);
    const int64_t outer = int64_t(chunks.quotient(uint64_t(chunk)));
    const int64_t begin = (chunk - outer * int64_t(chunks.size)) * piece;
    const int64_t last = begin + piece < n ? begin + piece : n;
    if (begin == 0 || sorted[begin - 1] != sorted[begin]) continue;
    const int64_t end = begin + first_of(sorted + begin, last - begin, sorted[begin] + 1);
    strips.each(strip, [&](int64_t c) {
      pieces[chunk * strips.inner + c] =
          sum_positions(g + outer * n * strips.inner, order, begin, end, strips.inner, c);
    });
  }
}

/// y [outer, rows, inner]; a warp per strip of a row
template <class T>
__global__ void sum_segments(T* y, const double* pieces, const T* g, const int64_t* sorted,
                             const uint32_t* order, Divider rows, int64_t n, int64_t chunks,
                             const __grid_constant__ Strips strips) {
#pragma unroll 1
  for (int64_t strip = first_row(); strip < strips.count; strip += row_step()) {
    const int64_t row = strips.row(strip);
    const int64_t outer = int64_t(rows.quotient(uint64_t(row)));
    const int64_t id = row - outer * int64_t(rows.size);
    const int64_t begin = first_of(sorted, n, id);
    const int64_t end = begin + first_of(sorted + begin, n - begin, id + 1);
    const int64_t cut = (begin / piece + 1) * piece, own = cut < end ? cut : end;
    strips.each(strip, [&](int64_t c) {
      double sum = sum_positions(g + outer * n * strips.inner, order, begin, own, strips.inner, c);
#pragma unroll 4
      for (int64_t k = own / piece; k * piece < end && k * piece >= cut; ++k)
        sum += pieces[(outer * chunks + k) * strips.inner + c];
      y[row * strips.inner + c] = cast<T>(sum);
    });
  }
}

/// y = x at index; the layout's operands are y, index and x. In x, dimension d has stride 0 in the
/// layout; its stride is `step`.
template <class Word>
__global__ void gather_elements(Word* y, const Word* x, const int64_t* index,
                                const __grid_constant__ Layout<3> layout, uint64_t n,
                                int64_t step) {
#pragma unroll 1
  for (uint64_t i = thread_index(); i < n; i += thread_count()) {
    const Offsets<3> at = offsets(layout, i);
    y[at.v[0]] = x[at.v[2] + index[at.v[1]] * step];
  }
}

/// Dimension d of y, index and source: the length in index and source, and the
/// strides in all three.
struct Along {
  int64_t n, to, index, from;
};

/// y += source, a thread per column; the layout is of the columns of y, index and source
template <class T>
__global__ void scatter_columns(T* y, const int64_t* index, const T* source,
                                const __grid_constant__ Layout<3> layout, uint64_t columns,
                                Along d) {
#pragma unroll 1
  for (uint64_t c = thread_index(); c < columns; c += thread_count()) {
    const Offsets<3> at = offsets(layout, c);
#pragma unroll 1
    for (int64_t i = 0; i < d.n; ++i) {
      T& sum = y[at.v[0] + index[at.v[1] + i * d.index] * d.to];
      sum = math::wrapping_add(sum, source[at.v[2] + i * d.from]);
    }
  }
}

/// As scatter_columns(), by sorted columns [columns, n]: one thread for each element
/// of y that is added to.
template <class T>
__global__ void scatter_segments(T* y, const int64_t* sorted, const uint32_t* order,
                                 const T* source, const __grid_constant__ Layout<3> layout,
                                 uint64_t items, Divider n, Along d) {
#pragma unroll 1
  for (uint64_t item = thread_index(); item < items; item += thread_count()) {
    const uint64_t column = n.quotient(item);
    const int64_t place = int64_t(item - column * n.size);
    const int64_t* const ids = sorted + column * n.size;
    if (place > 0 && ids[place - 1] == ids[place]) continue;  // not the first of its segment
    const Offsets<3> at = offsets(layout, column);
    T& to = y[at.v[0] + ids[place] * d.to];
    T sum = to;
    for (int64_t i = place; i < d.n && ids[i] == ids[place]; ++i)
      sum = math::wrapping_add(sum, source[at.v[2] + int64_t(order[column * n.size + i]) * d.from]);
    to = sum;
  }
}

Shape with(Shape shape, int64_t d, int64_t value) {
  shape[d] = value;
  return shape;
}

}  // namespace

Tensor take(const Tensor& x, const Tensor& ids) {
  const int64_t rows = x.size(1), n = ids.numel();
  Tensor y = empty_like(x, {x.size(0), n, x.size(2)});
  if (y.numel() == 0) return y;
  auto move = [&]<class Word>(int64_t total, int64_t inner) {
    launch("take", x.device().index, take_slices<Word>, blocks_for(total, threads), threads,
           static_cast<Word*>(y.raw_data()), static_cast<const Word*>(x.raw_data()),
           static_cast<const int64_t*>(ids.data<int64_t>()), uint64_t(total), uint64_t(rows),
           Divider(n), Divider(inner));
  };
  const int64_t per_pack = 16 / item_size(x.dtype());
  if (x.size(2) % per_pack == 0 && aligned(x.raw_data()) && aligned(y.raw_data())) {
    move.template operator()<Pack<uint32_t, 4>>(y.numel() / per_pack, x.size(2) / per_pack);
  } else {
    dispatch_word(x.dtype(),
                  [&]<class Word>() { move.template operator()<Word>(y.numel(), x.size(2)); });
  }
  return y;
}

Tensor place(const Tensor& g, const Tensor& ids, int64_t rows) {
  const int64_t outer = g.size(0), n = ids.numel(), inner = g.size(2);
  Tensor y = empty_like(g, {outer, rows, inner});
  if (y.numel() == 0) return y;
  if (n == 0) {
    fill(y, 0);
    return y;
  }
  Tensor sorted;
  const Tensor order = sort_order(ids.view({1, n}), false, &sorted);
  const int64_t chunks = ceil_div(n, piece);
  const Tensor pieces =
      empty({chunks > 1 ? outer * chunks * inner : 1}, {.dtype = f64, .device = g.device()});
  const auto* const places = static_cast<const uint32_t*>(order.raw_data());
  const int64_t* const keys = sorted.data<int64_t>();
  const int device = g.device().index;
  dispatch_floating(g.dtype(), "place", [&]<class T>() {
    const T* from = g.data<T>();
    const dim3 block = row_block<32>();
    if (chunks > 1) {
      const Strips strips = strips_of(outer * chunks, inner);
      launch("place", device, reduce_scatter<T>, blocks_for(strips.count, block.y), block,
             pieces.data<double>(), from, keys, places, Divider(chunks), n, strips);
    }
    const Strips strips = strips_of(outer * rows, inner);
    launch("place", device, sum_segments<T>, blocks_for(strips.count, block.y), block, y.data<T>(),
           static_cast<const double*>(pieces.data<double>()), from, keys, places, Divider(rows), n,
           chunks, strips);
  });
  return y;
}

Tensor gather(const Tensor& x, int64_t d, const Tensor& index) {
  Tensor y = empty_like(x, index.shape());
  if (y.numel() == 0) return y;
  const Layout<3> layout =
      make_layout(index.shape(), {y.strides(), index.strides(), with(x.strides(), d, 0)});
  dispatch_word(x.dtype(), [&]<class Word>() {
    launch("gather", x.device().index, gather_elements<Word>, blocks_for(y.numel(), threads),
           threads, static_cast<Word*>(y.raw_data()), static_cast<const Word*>(x.raw_data()),
           static_cast<const int64_t*>(index.data<int64_t>()), layout, uint64_t(y.numel()),
           x.strides()[d]);
  });
  return y;
}

void scatter_add(const Tensor& y, int64_t d, const Tensor& index, const Tensor& source) {
  if (index.numel() == 0) return;
  const int64_t n = index.size(d), columns = index.numel() / n;
  const Along along{n, y.strides()[d], index.strides()[d], source.strides()[d]};
  const Layout<3> layout =
      make_layout(with(index.shape(), d, 1), {y.strides(), index.strides(), source.strides()});
  const int device = y.device().index;
  Tensor sorted, order;
  if (n > short_column) {
    Shape last;
    for (int64_t e = 0; e < index.dim(); ++e)
      if (e != d) last.push_back(e);
    last.push_back(d);
    order = sort_order(index.permute(last).contiguous().view({columns, n}), false, &sorted);
  }
  dispatch_number(y.dtype(), "scatter_add", [&]<class T>() {
    if constexpr (!std::is_same_v<T, BFloat16>) {
      const T* from = source.data<T>();
      if (n <= short_column) {
        launch("scatter_add", device, scatter_columns<T>, blocks_for(columns, threads), threads,
               y.data<T>(), static_cast<const int64_t*>(index.data<int64_t>()), from, layout,
               uint64_t(columns), along);
      } else {
        launch("scatter_add", device, scatter_segments<T>, blocks_for(columns * n, threads),
               threads, y.data<T>(), static_cast<const int64_t*>(sorted.data<int64_t>()),
               static_cast<const uint32_t*>(order.raw_data()), from, layout, uint64_t(columns * n),
               Divider(n), along);
      }
    }
  });
}

}  // namespace stretto::cuda
