// Rotary positional encoding: a warp rotates a row, one pair of features per lane. Rows are taken in
// the order of [B, L, H, D]: the heads of a position use the same row of the tables. Tested against
// the CPU: bit-identical.
#include "cuda/attention/rotary.h"
#include "cuda/runtime/common.cuh"
#include "cuda/runtime/unfused.h"

namespace stretto::cuda {
namespace {

struct Strides {
  int64_t batch, head, row;
};
Strides strides_of(const Tensor& x) { return {x.strides()[0], x.strides()[1], x.strides()[2]}; }

struct RotaryPlan {
  Strides x, y;
  int64_t rows;  // B·L·H
  Divider by_heads, by_length;
  int pairs, width;
  bool interleaved, inverse;
};

template <class T, class C>
__global__ void rotate_rows(T* out, const T* in, const C* cosines, const C* sines, RotaryPlan p) {
#pragma unroll 1
  for (int64_t row = first_row(); row < p.rows; row += row_step()) {
    const auto token = int64_t(p.by_heads.quotient(uint64_t(row)));
    const auto batch = int64_t(p.by_length.quotient(uint64_t(token)));
    const int64_t head = row - token * int64_t(p.by_heads.size);
    const int64_t l = token - batch * int64_t(p.by_length.size);
    const T* const x = in + batch * p.x.batch + head * p.x.head + l * p.x.row;
    T* const y = out + batch * p.y.batch + head * p.y.head + l * p.y.row;
#pragma unroll 1
    for (int i = int(threadIdx.x); i < p.pairs; i += 32) {
      const int first = p.interleaved ? 2 * i : i;
      const int second = p.interleaved ? first + 1 : i + p.pairs;
      const C a = cast<C>(x[first]), b = cast<C>(x[second]), c = cosines[l * p.pairs + i];
      const C s = p.inverse ? -sines[l * p.pairs + i] : sines[l * p.pairs + i];
      y[first] = cast<T>(a * c - b * s);
      y[second] = cast<T>(b * c + a * s);
    }
#pragma unroll 1
    for (int i = 2 * p.pairs + int(threadIdx.x); i < p.width; i += 32) y[i] = x[i];
  }
}

}  // namespace

void rotate(const Tensor& x, const Tensor& cosines, const Tensor& sines, bool interleaved,
            bool inverse, const Tensor& y) {
  const int64_t rows = x.size(0) * x.size(1) * x.size(2);
  const RotaryPlan plan{.x = strides_of(x),
                        .y = strides_of(y),
                        .rows = rows,
                        .by_heads = Divider(x.size(1)),
                        .by_length = Divider(x.size(2)),
                        .pairs = int(cosines.size(1)),
                        .width = int(x.size(3)),
                        .interleaved = interleaved,
                        .inverse = inverse};
  const dim3 block = row_block<32>();
  dispatch_floating(x.dtype(), "rotate", [&]<class T>() {
    launch("rotate", x.device().index, rotate_rows<T, compute_t<T>>, blocks_for(rows, block.y),
           block, y.data<T>(), x.data<T>(), cosines.data<compute_t<T>>(),
           sines.data<compute_t<T>>(), plan);
  });
}

}  // namespace stretto::cuda
