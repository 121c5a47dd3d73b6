// Rows made orthonormal, one after the other, by the Gram–Schmidt process.
//
// A block holds a matrix [n, m] in shared memory. From row i the projections on all rows before it
// are subtracted at once, d_j = u_j · v and v −= Σ_j d_j u_j, and then once more. The second pass
// makes the row orthogonal to full precision, as the CPU's order does, which subtracts each
// projection before it computes the next ("twice is enough": Giraud, Langou and Rozložník, 2005).
// Tested against the CPU.
#include "cuda/orthogonal.h"
#include "cuda/runtime/common.cuh"

namespace stretto::cuda {
namespace {

constexpr int threads = 256, warps = threads / 32;

/// grid: matrices; shared: [n, m] rows and [n] products, f64
__global__ void __launch_bounds__(threads) orthogonal_matrices(double* x, int n, int m) {
  extern __shared__ double rows[];
  double *const dots = rows + n * m, *const own = x + int64_t(blockIdx.x) * n * m;
  const int warp = int(threadIdx.x) / 32, lane = int(threadIdx.x) % 32;
#pragma unroll 1
  for (int i = int(threadIdx.x); i < n * m; i += threads) rows[i] = own[i];
  const auto product = [&](const double* u, const double* v) {
    double sum = 0;
#pragma unroll 1
    for (int k = lane; k < m; k += 32) sum += u[k] * v[k];
    return combine<32>(sum, Sum());
  };
  // Row 0 has no rows before it: up to the first barrier each thread reads only
  // what it has written.
#pragma unroll 1
  for (int i = 0; i < n; ++i) {
    double* const v = rows + i * m;
#pragma unroll 1
    for (int pass = 0; pass < 2; ++pass) {
#pragma unroll 1
      for (int j = warp; j < i; j += warps) {
        const double dot = product(rows + j * m, v);
        if (lane == 0) dots[j] = dot;
      }
      __syncthreads();
#pragma unroll 1
      for (int k = int(threadIdx.x); k < m; k += threads) {
        double rest = v[k];
#pragma unroll 1
        for (int j = 0; j < i; ++j) rest -= dots[j] * rows[j * m + k];
        v[k] = rest;
      }
      __syncthreads();
    }
    const double norm = math::sqrt(product(v, v));  // computed by every warp, identically
    __syncthreads();
#pragma unroll 1
    for (int k = int(threadIdx.x); k < m; k += threads) v[k] /= norm;
    __syncthreads();
  }
#pragma unroll 1
  for (int i = int(threadIdx.x); i < n * m; i += threads) own[i] = rows[i];
}

}  // namespace

bool orthogonal_rows_fit(int64_t n, int64_t m, Device device) {
  const int64_t most = shared_memory(device.index);
  return n < most && m < most && 8 * n * (m + 1) <= most;
}

void orthogonal_rows(const Tensor& x) {
  const int n = int(x.size(-2)), m = int(x.size(-1));
  const int64_t matrices = x.numel() / (int64_t(n) * m);
  launch_with_shared("orthogonal_rows", x.device().index, orthogonal_matrices, unsigned(matrices),
                     threads, 8 * n * (m + 1), x.data<double>(), n, m);
}

}  // namespace stretto::cuda
