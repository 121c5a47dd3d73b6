// The relative shift: row i is moved sideways by a distance that depends on i; zeros fill the gap.
//
// out [rows, out_width] from in [rows, in_width], row r = (.., i) with i = r mod M. A warp moves a
// row, 32 adjacent elements at a time, which fill whole sectors of out; every element of out is
// written once. Tested against the CPU: bit-identical.
#include "cuda/attention/skew.h"
#include "cuda/runtime/common.cuh"

namespace stretto::cuda {
namespace {

/// out [rows, out_width] from in [rows, in_width]
template <bool Inverse, class Word>
__global__ void shift_rows(Word* out, const Word* in, int64_t rows, Divider by_m, int64_t in_width,
                           int64_t out_width) {
  const int64_t m = int64_t(by_m.size);
#pragma unroll 1
  for (int64_t row = first_row(); row < rows; row += row_step()) {
    const int64_t i = row - int64_t(by_m.quotient(uint64_t(row))) * m;
    const int64_t start = row * out_width;
#pragma unroll 4
    for (int64_t first = -(start % 32); first < out_width; first += 32) {
      const int64_t c = first + threadIdx.x;
      if (c < 0 || c >= out_width) continue;
      const int64_t from = Inverse ? unskew_column(i, c, m) : skew_column(i, c, m);
      Word x = 0;
      if (from >= 0 && from < in_width) x = in[row * in_width + from];
      out[start + c] = x;
    }
  }
}

template <bool Inverse>
Tensor shift(const char* name, const Tensor& x, int64_t width) {
  const int64_t m = x.size(-2), in_width = x.size(-1);
  Shape shape = x.shape();
  shape.back() = width;
  Tensor out = empty_like(x, shape);
  if (out.numel() == 0) return out;
  const int64_t rows = out.numel() / width;
  dispatch_floating(x.dtype(), name, [&]<class T>() {
    using Word = std::conditional_t<sizeof(T) == 8, uint64_t,
                                    std::conditional_t<sizeof(T) == 4, uint32_t, uint16_t>>;
    const dim3 block = row_block<32>();
    launch(name, x.device().index, shift_rows<Inverse, Word>, blocks_for(rows, block.y), block,
           static_cast<Word*>(out.raw_data()), static_cast<const Word*>(x.raw_data()), rows,
           Divider(m), in_width, width);
  });
  return out;
}

}  // namespace

Tensor skew(const Tensor& x, int64_t n_keys) { return shift<false>("skew", x, n_keys); }
Tensor unskew(const Tensor& y, int64_t width) { return shift<true>("unskew", y, width); }

}  // namespace stretto::cuda
