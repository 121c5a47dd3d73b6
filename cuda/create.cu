// New tensors whose values depend only on their indices: one thread per element, each written once.
// Bit-identical to the CPU's: compiled without fused multiply-adds (cuda/runtime/unfused.h). Tested
// against the CPU's arange, linspace, tril and triu.
#include "cuda/create.h"
#include "cuda/runtime/common.cuh"
#include "cuda/runtime/unfused.h"

namespace stretto::cuda {
namespace {

constexpr int threads = 256;

/// out [n]
__global__ void fill_line(double* out, int64_t n, int64_t counted, double start, double step,
                          double end) {
#pragma unroll 1
  for (int64_t i = thread_index(); i < n; i += thread_count())
    out[i] = i < counted ? start + double(i) * step : end - step * double(n - 1 - i);
}

/// out [rows, columns]; a warp per row
__global__ void fill_above(bool* out, int64_t rows, int64_t columns, int64_t k) {
#pragma unroll 1
  for (int64_t row = first_row(); row < rows; row += row_step())
#pragma unroll 1
    for (int64_t c = threadIdx.x; c < columns; c += blockDim.x)
      out[row * columns + c] = c - row > k;
}

}  // namespace

Tensor line(int64_t n, int64_t counted, double start, double step, double end, Device device) {
  Tensor out = empty({n}, {.dtype = f64, .device = device});
  if (n == 0) return out;
  launch("line", device.index, fill_line, blocks_for(n, threads), threads, out.data<double>(), n,
         counted, start, step, end);
  return out;
}

Tensor above_diagonal(int64_t rows, int64_t columns, int64_t k, Device device) {
  Tensor out = empty({rows, columns}, {.dtype = boolean, .device = device});
  if (out.numel() == 0) return out;
  const dim3 block = row_block<32>();
  launch("above_diagonal", device.index, fill_above, blocks_for(rows, block.y), block,
         out.data<bool>(), rows, columns, k);
  return out;
}

}  // namespace stretto::cuda
