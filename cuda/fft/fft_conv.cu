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

/// y [.., rows, columns]; the layout is of the matrices of y, x and w
template <class T>
__global__ void sum_products(T* y, const T* x, const T* w,
                             const __grid_constant__ Layout<3> matrices, uint64_t n, ConvAxis rows,
                             ConvAxis columns, Divider height, Divider width, int64_t x_pitch,
                             int64_t w_pitch) {
#pragma unroll 1
  for (uint64_t i = thread_index(); i < n; i += thread_count()) {
    const uint64_t line = width.quotient(i), matrix = height.quotient(line);
    const int64_t r = int64_t(line - matrix * height.size), c = int64_t(i - line * width.size);
    const Offsets<3> at = offsets(matrices, matrix);
    const Taps over(rows, r), along(columns, c);
    T sum = 0;
#pragma unroll 1
    for (int64_t q = over.first; q < over.last; ++q) {
      const T* const tap = w + at.v[2] + (rows.w_first + q) * w_pitch + columns.w_first;
      const T* const from = x + at.v[1] + (rows.x_first + r + rows.offset - q) * x_pitch +
                            columns.x_first + c + columns.offset;
#pragma unroll 1
      for (int64_t p = along.first; p < along.last; ++p) sum += tap[p] * from[-p];
    }
    y[at.v[0] + r * int64_t(width.size) + c] = sum;
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
    launch("fft_conv", y.device().index, sum_products<T>, blocks_for(y.numel(), 256), 256,
           y.data<T>(), static_cast<const T*>(x.data<T>()), static_cast<const T*>(w.data<T>()),
           matrices, uint64_t(y.numel()), rows, columns, Divider(rows.length),
           Divider(columns.length), x.size(-1), w.size(-1));
  };
  dispatch_among<double, float>(x.dtype(), run);
  return y;
}

}  // namespace stretto::cuda
