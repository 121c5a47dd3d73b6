// Convolution by sums of products: a thread per result, in the tensors' dtype, taps in
// order. Neighboring threads read neighboring elements of x and the same taps. Tested
// against the reference in tests/ops/op_table_test.cpp.
#include "cuda/fft/fft_conv.h"
#include "cuda/runtime/common.cuh"

namespace stretto::cuda {
namespace {

/// The taps that are multiplied with elements of x in result t: first … last − 1.
struct Taps {
  int64_t first, last;
  __device__ Taps(const ConvAxis& axis, int64_t t) {
    const int64_t at = t + axis.offset;
    first = at >= axis.n ? at - axis.n + 1 : 0;
    last = at + 1 < axis.taps ? at + 1 : axis.taps;
  }
};

/// The operands of sum_products(); matrices: the layout of those of y, x and w.
template <class T>
struct Convolution {
  T* y;
  const T *x, *w;
  Layout<3> matrices;
  uint64_t n;  // elements of y
  ConvAxis rows, columns;
  Divider height, width;  // of y
  int64_t x_pitch, w_pitch;
};

/// y [.., rows, columns]
template <class T>
__global__ void sum_products(const __grid_constant__ Convolution<T> a) {
#pragma unroll 1
  for (uint64_t i = thread_index(); i < a.n; i += thread_count()) {
    const uint64_t line = a.width.quotient(i), matrix = a.height.quotient(line);
    const int64_t r = int64_t(line - matrix * a.height.size), c = int64_t(i - line * a.width.size);
    const Offsets<3> at = offsets(a.matrices, matrix);
    const Taps over(a.rows, r), along(a.columns, c);
    T sum = 0;
#pragma unroll 1
    for (int64_t q = over.first; q < over.last; ++q) {
      const T* const tap = a.w + at.v[2] + (a.rows.w_first + q) * a.w_pitch + a.columns.w_first;
      const T* const from = a.x + at.v[1] + (a.rows.x_first + r + a.rows.offset - q) * a.x_pitch +
                            a.columns.x_first + c + a.columns.offset;
#pragma unroll 1
      for (int64_t p = along.first; p < along.last; ++p) sum += tap[p] * from[-p];
    }
    a.y[at.v[0] + r * int64_t(a.width.size) + c] = sum;
  }
}

}  // namespace

Tensor convolve_directly(const Tensor& x, const Tensor& w, const ConvAxis& rows,
                         const ConvAxis& columns) {
  auto leading = [](const Shape& s) { return Shape(s.begin(), s.dim() - 2); };
  const Shape batch = broadcast_shapes("fft_conv", leading(x.shape()), leading(w.shape()));
  Shape shape = batch;
  shape.push_back(rows.length);
  shape.push_back(columns.length);
  Tensor y = empty_like(x, shape);
  if (y.numel() == 0) return y;
  auto strides_of = [&](const Tensor& t) {
    return broadcast_strides(leading(t.shape()), leading(contiguous_strides(t.shape())), batch);
  };
  const Layout<3> matrices = make_layout(batch, {strides_of(y), strides_of(x), strides_of(w)});
  auto run = [&]<class T>() {
    const Convolution<T> args{.y = y.data<T>(),
                              .x = x.data<T>(),
                              .w = w.data<T>(),
                              .matrices = matrices,
                              .n = uint64_t(y.numel()),
                              .rows = rows,
                              .columns = columns,
                              .height = Divider(rows.length),
                              .width = Divider(columns.length),
                              .x_pitch = x.size(-1),
                              .w_pitch = w.size(-1)};
    launch("fft_conv", y.device().index, sum_products<T>, blocks_for(y.numel(), 256), 256, args);
  };
  dispatch_among<double, float>(x.dtype(), run);
  return y;
}

}  // namespace stretto::cuda
