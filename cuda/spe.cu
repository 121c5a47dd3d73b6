// The noise of convSPE: rows of normal draws, each from its own place in one sequence.
//
// out [N, rows, n]: a thread takes one Philox block, which is four draws, of a row; a row that
// begins or ends within a block stores what is its own of it. All have the CPU's bits: this file is
// compiled without fused products and sums (cmake/cuda.cmake). Tested against the CPU's codes.
#include "cuda/capture.h"
#include "cuda/common.cuh"
#include "cuda/spe.h"

namespace stretto::cuda {
namespace {

constexpr int threads = 128;

/// out [count, rows, n]
template <class T>
__global__ void normal_rows(T* out, DrawKey given, int64_t count, int64_t rows, int64_t n,
                            int64_t apart, int64_t first, int64_t pitch) {
  const RandomKey key = key_now(given);
#pragma unroll 1
  for (int64_t block = blockIdx.y; block < count; block += gridDim.y) {
#pragma unroll 1
    for (int64_t row = blockIdx.x; row < rows; row += gridDim.x) {
      const int64_t begin = block * apart + first + row * pitch;
      T* const to = out + (block * rows + row) * n;
#pragma unroll 1
      for (int64_t at = int64_t(threadIdx.x) * 4 - (begin & 3); at < n; at += threads * 4) {
        const Random4 r = philox(key, uint64_t(begin + at) / 4);
        float y[4];
        normals_from_bits(r.v[0], r.v[1], y[0], y[1]);
        normals_from_bits(r.v[2], r.v[3], y[2], y[3]);
#pragma unroll
        for (int j = 0; j < 4; ++j)
          if (at + j >= 0 && at + j < n) to[at + j] = T(y[j]);
      }
    }
  }
}

}  // namespace

void fill_normal_rows(const Tensor& out, RandomKey key, int64_t apart, int64_t first,
                      int64_t pitch) {
  if (out.numel() == 0) return;
  const int64_t count = out.size(0), rows = out.size(1), n = out.size(2);
  const dim3 grid(blocks_for(rows, 1), blocks_for(count, 1));
  const int device = out.device().index;
  const auto run = [&](auto tag) {
    using T = typename decltype(tag)::type;
    launch("fill_normal_rows", device, normal_rows<T>, grid, threads, out.data<T>(),
           draw_key(key, device), count, rows, n, apart, first, pitch);
  };
  out.dtype() == f64 ? run(TypeTag<double>{}) : run(TypeTag<float>{});
}

}  // namespace stretto::cuda
