// Convolutions on the CPU as matrix products with the matrix of windows ("columns", im2col), built
// in tiles that stay in the cache:
//
//     columns [depth, positions]    depth = (channel, kernel row, kernel column)
//     y       = w · columns         w [out, depth], for each image and group
//     dx     += wᵀ · g              added to the image at each window (col2im)
//     dw      = Σ_images g · columnsᵀ
//
// The columns of a 1 × 1 kernel are the image itself. Depthwise convolutions with stride 1 have
// their own kernels (ops/conv/conv_depthwise.h).
#include <algorithm>

#include "core/gemm/blocks.h"
#include "core/gemm/gemm.h"
#include "core/gemm/workspace.h"
#include "core/parallel.h"
#include "ops/conv/conv_depthwise.h"
#include "ops/conv/conv_kernels.h"
#include "ops/create.h"
#include "ops/reduce.h"

namespace stretto::conv_cpu {
namespace {

using kernels::ceil_div;
using kernels::part;

constexpr int64_t tile_elements = 160 << 10;  // of a tile of columns: 640 KB in f32, within L2
constexpr int64_t unit = 32;        // tiles have a multiple of the columns of gemm's tiles
constexpr int64_t least_items = 8;  // to distribute to threads

constinit thread_local kernels::Workspace tile_memory;

// True if the columns are the image itself.
bool is_pointwise(const ConvSizes& s) {
  return s.taps() == 1 && s.unit_stride() && s.padding.height == 0 && s.padding.width == 0;
}

// Returns a chunk size of n of at most about `most`, a multiple of `unit`, halved down to 64 until
// there are `least_items` in `others` times the number of chunks.
int64_t balanced(int64_t n, int64_t most, int64_t others) {
  int64_t size = part(n, std::max(most, 2 * unit), unit);
  while (size > 2 * unit && others * ceil_div(n, size) < least_items)
    size = kernels::round_up(ceil_div(size, 2), unit);
  return size;
}

// A tile of columns: rows k … k + rows − 1 and positions p … p + count − 1.
struct Tile {
  int64_t k, rows, p, count;
};

// Calls f(at, n, begin, end, offset) for runs of n positions in one output row. The run starts at
// element `at` of the tile [rows, count]. Elements begin … end − 1 are inside of the image [in, H,
// W]: element j is at offset + j · stride.width.
template <class F>
[[gnu::always_inline]] inline void for_each_run(const ConvSizes& s, const Tile& tile, F f) {
  int64_t at = 0;
  const int64_t taps = s.taps(), step = s.stride.width;
  for (int64_t k = tile.k; k < tile.k + tile.rows; ++k) {
    const int64_t channel = k / taps * s.image.height;
    const int64_t row = k % taps / s.kernel.width * s.dilation.height - s.padding.height;
    const int64_t column = k % s.kernel.width * s.dilation.width - s.padding.width;
    int64_t i = tile.p / s.output.width, j = tile.p % s.output.width, n;
    for (int64_t rest = tile.count; rest > 0; rest -= n, at += n, ++i, j = 0) {
      n = std::min(rest, s.output.width - j);
      const int64_t y = i * s.stride.height + row, x = j * step + column;
      const int64_t begin = x < 0 ? std::min(n, ceil_div(-x, step)) : 0;
      const bool inside = y >= 0 && y < s.image.height && x < s.image.width;
      const int64_t end = inside ? std::clamp(ceil_div(s.image.width - x, step), begin, n) : begin;
      f(at, n, begin, end, (channel + y) * s.image.width + x);
    }
  }
}

template <class T>
void fill_columns(const ConvSizes& s, const Tile& tile, const T* image, T* columns) {
  const int64_t step = s.stride.width;
  for_each_run(s, tile, [&](int64_t at, int64_t n, int64_t begin, int64_t end, int64_t offset) {
    T* const to = columns + at;
    std::fill(to, to + begin, T(0));
    if (step == 1) {
      if (begin < end) std::copy_n(image + offset + begin, end - begin, to + begin);
    } else {
      for (int64_t j = begin; j < end; ++j) to[j] = image[offset + j * step];
    }
    std::fill(to + end, to + n, T(0));
  });
}

template <class T>
void add_columns(const ConvSizes& s, const Tile& tile, const T* columns, T* image) {
  const int64_t step = s.stride.width;
  for_each_run(s, tile, [&](int64_t at, int64_t, int64_t begin, int64_t end, int64_t offset) {
    const T* const from = columns + at;
    if (step == 1) {
      for (int64_t j = begin; j < end; ++j) image[offset + j] += from[j];
    } else {
      for (int64_t j = begin; j < end; ++j) image[offset + j * step] += from[j];
    }
  });
}

// The tile as an operand: in the image itself, or copied to this thread's memory.
template <class T>
MatrixRef<T> columns_of(const ConvSizes& s, const Tile& tile, const T* image) {
  if (is_pointwise(s)) return {image + tile.k * s.positions() + tile.p, s.positions()};
  T* const columns = tile_memory.reserve<T>(tile.rows * tile.count);
  fill_columns(s, tile, image, columns);
  return {columns, tile.count};
}

template <class T>
void forward(const ConvSizes& s, const T* x, const T* w, const T* bias, T* y) {
  const int64_t depth = s.depth(), positions = s.positions(), planes = s.batch * s.groups;
  const int64_t rows = part(depth, 1024, 4);
  const int64_t count = balanced(positions, tile_elements / rows, planes);
  const int64_t tiles = ceil_div(positions, count);
  parallel_for(planes * tiles, 1, [&](int64_t item, int64_t) {
    const int64_t plane = item / tiles, group = plane % s.groups, p = item % tiles * count;
    const int64_t n = std::min(count, positions - p);
    T* const to = y + plane * s.out * positions + p;
    for (int64_t o = 0; bias && o < s.out; ++o)
      std::fill_n(to + o * positions, n, bias[group * s.out + o]);
    for (int64_t k = 0; k < depth; k += rows) {
      const Tile tile{k, std::min(rows, depth - k), p, n};
      gemm(s.out, n, tile.rows, T(1), {w + group * s.out * depth + k, depth},
           columns_of(s, tile, x + plane * s.in * s.pixels()), T(bias || k > 0), to, positions);
    }
  });
}

// One thread computes whole channels of dx.
template <class T>
void input_gradient(const ConvSizes& s, const T* g, const T* w, T* dx) {
  const int64_t depth = s.depth(), positions = s.positions(), planes = s.batch * s.groups;
  int64_t channels = part(s.in, std::max<int64_t>(192 / s.taps(), 1), 1);
  while (channels * s.taps() > 64 && channels > 1 &&
         planes * ceil_div(s.in, channels) < least_items)
    channels = ceil_div(channels, 2);
  const int64_t blocks = ceil_div(s.in, channels);
  const int64_t most = tile_elements / (channels * s.taps());
  const int64_t count = part(positions, std::max(most, 2 * unit), unit);
  parallel_for(planes * blocks, 1, [&](int64_t item, int64_t) {
    const int64_t plane = item / blocks, c = item % blocks * channels;
    const int64_t here = std::min(channels, s.in - c), rows = here * s.taps();
    const MatrixRef<T> weights{w + plane % s.groups * s.out * depth + c * s.taps(), depth, true};
    T* const image = dx + (plane * s.in + c) * s.pixels();
    for (int64_t p = 0; p < positions; p += count) {
      const int64_t n = std::min(count, positions - p);
      const MatrixRef<T> from{g + plane * s.out * positions + p, positions};
      if (is_pointwise(s)) {
        gemm(rows, n, s.out, T(1), weights, from, T(0), image + p, positions);
        continue;
      }
      T* const columns = tile_memory.reserve<T>(rows * n);
      gemm(rows, n, s.out, T(1), weights, from, T(0), columns, n);
      add_columns(s, {0, rows, p, n}, columns, image);
    }
  });
}

// A thread computes rows of the depth of one group, for a chunk of the images. dw is [chunks, G,
// out, depth].
struct WeightChunks {
  int64_t rows, images;

  explicit WeightChunks(const ConvSizes& s) : rows(balanced(s.depth(), 256, s.groups)) {
    const int64_t items = s.groups * ceil_div(s.depth(), rows);
    images = ceil_div(s.batch, std::min(s.batch, ceil_div(least_items, items)));
  }
};

template <class T>
void weight_gradient(const ConvSizes& s, WeightChunks chunks, const T* x, const T* g, T* dw) {
  const int64_t depth = s.depth(), positions = s.positions();
  const int64_t blocks = ceil_div(depth, chunks.rows), each = s.groups * blocks;
  const int64_t count = part(positions, 512, unit);
  parallel_for(ceil_div(s.batch, chunks.images) * each, 1, [&](int64_t item, int64_t) {
    const int64_t group = item % each / blocks, k = item % blocks * chunks.rows;
    const int64_t rows = std::min(chunks.rows, depth - k), first = item / each * chunks.images;
    T* const to = dw + (item / each * s.groups + group) * s.out * depth + k;
    for (int64_t image = first; image < std::min(s.batch, first + chunks.images); ++image) {
      const int64_t plane = image * s.groups + group;
      for (int64_t p = 0; p < positions; p += count) {
        const Tile tile{k, rows, p, std::min(count, positions - p)};
        MatrixRef<T> columns = columns_of(s, tile, x + plane * s.in * s.pixels());
        columns.transposed = true;
        gemm(s.out, rows, tile.count, T(1), {g + plane * s.out * positions + p, positions}, columns,
             T(image > first || p > 0), to, depth);
      }
    }
  });
}

// y if there is nothing to sum.
Tensor without_terms(const Tensor& bias, const ConvSizes& s, TensorOptions options) {
  Tensor y = zeros(s.y_shape(), options);
  if (bias.defined()) y.transpose(1, -1).copy_(bias);
  return y;
}

bool is_depthwise(const ConvSizes& s) { return s.in == 1 && s.out == 1 && s.unit_stride(); }

}  // namespace

Tensor forward(const Tensor& x, const Tensor& w, const Tensor& bias, const ConvSizes& s) {
  if (x.numel() == 0 || w.numel() == 0) return without_terms(bias, s, options_of(x));
  Tensor y = empty(s.y_shape(), options_of(x));
  dispatch_among<double, float>(x.dtype(), [&]<class T>() {
    const T* row = bias.defined() ? bias.data<T>() : nullptr;
    (is_depthwise(s) ? depthwise_forward<T> : forward<T>)(s, x.data<T>(), w.data<T>(), row,
                                                          y.data<T>());
  });
  return y;
}

Tensor input_gradient(const Tensor& g, const Tensor& w, const ConvSizes& s) {
  Tensor dx = zeros(s.x_shape(), options_of(g));
  if (dx.numel() == 0 || g.numel() == 0) return dx;
  dispatch_among<double, float>(g.dtype(), [&]<class T>() {
    (is_depthwise(s) ? depthwise_input_gradient<T> : input_gradient<T>)(s, g.data<T>(), w.data<T>(),
                                                                        dx.data<T>());
  });
  return dx;
}

Tensor weight_gradient(const Tensor& x, const Tensor& g, const ConvSizes& s) {
  if (x.numel() == 0 || g.numel() == 0) return zeros(s.w_shape(), options_of(x));
  const bool depthwise = is_depthwise(s);
  const WeightChunks chunks(s);
  Shape shape = s.w_shape();
  shape.insert(0, depthwise ? 1 : ceil_div(s.batch, chunks.images));
  const Tensor partial = empty(shape, options_of(x));
  dispatch_among<double, float>(x.dtype(), [&]<class T>() {
    if (depthwise)
      depthwise_weight_gradient(s, x.data<T>(), g.data<T>(), partial.data<T>());
    else
      weight_gradient(s, chunks, x.data<T>(), g.data<T>(), partial.data<T>());
  });
  return shape[0] == 1 ? partial.squeeze(0) : sum(partial, {0});
}

}  // namespace stretto::conv_cpu
