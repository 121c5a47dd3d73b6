// Rotary positional encoding: a warp rotates a row, one pair of features per lane. Rows are taken
// in the order of [B, L, H, D]: the heads of a position use the same row of the tables. Tested
// against the CPU: bit-identical.
#include "cuda/attention/rotary.h"
#include "cuda/runtime/common.cuh"
#include "cuda/runtime/head_rows.cuh"
#include "cuda/runtime/unfused.h"

namespace stretto::cuda {
namespace {

struct RotaryPlan {
  int64_t rows;  // B·L·H
  Divider by_heads, by_length;
  int pairs, width;
  bool interleaved, inverse;
};

/// out, in [B, H, L, D]; cosines, sines [L, pairs]
template <class T, class C>
__global__ void rotate_rows(HeadRows<T> out, HeadRows<const T> in, const C* cosines, const C* sines,
                            RotaryPlan p) {
#pragma unroll 1
  for (int64_t row = first_row(); row < p.rows; row += row_step()) {
    const uint64_t token = p.by_heads.quotient(uint64_t(row)), batch = p.by_length.quotient(token);
    const int head = int(uint64_t(row) - token * p.by_heads.size),
              l = int(token - batch * p.by_length.size);
    const T* const x = in.at(int(batch), head, l);
    T* const y = out.at(int(batch), head, l);
    const C *const c = cosines + int64_t(l) * p.pairs, *const s = sines + int64_t(l) * p.pairs;
#pragma unroll 1
    for (int i = int(threadIdx.x); i < p.pairs; i += 32) {
      const int first = p.interleaved ? 2 * i : i;
      const int second = p.interleaved ? first + 1 : i + p.pairs;
      const C a = cast<C>(x[first]), b = cast<C>(x[second]), sine = p.inverse ? -s[i] : s[i];
      y[first] = cast<T>(a * c[i] - b * sine);
      y[second] = cast<T>(b * c[i] + a * sine);
    }
#pragma unroll 1
    for (int i = 2 * p.pairs + int(threadIdx.x); i < p.width; i += 32) y[i] = x[i];
  }
}

}  // namespace

void rotate(const Tensor& x, const Tensor& cosines, const Tensor& sines, bool interleaved,
            bool inverse, const Tensor& y) {
  const int64_t rows = x.size(0) * x.size(1) * x.size(2);
  const RotaryPlan plan{.rows = rows,
                        .by_heads = Divider(x.size(1)),
                        .by_length = Divider(x.size(2)),
                        .pairs = int(cosines.size(1)),
                        .width = int(x.size(3)),
                        .interleaved = interleaved,
                        .inverse = inverse};
  const dim3 block = row_block<32>();
  dispatch_floating(x.dtype(), "rotate", [&]<class T>() {
    launch("rotate", x.device().index, rotate_rows<T, compute_t<T>>, blocks_for(rows, block.y),
           block, head_rows<T>(y), head_rows<const T>(x), cosines.data<compute_t<T>>(),
           sines.data<compute_t<T>>(), plan);
  });
}

}  // namespace stretto::cuda
