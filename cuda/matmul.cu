// Matrix products by cuBLAS.
//
// out = op(a) · op(b), row-major. cuBLAS is column-major, where the same memory reads as the
// transpose: it computes outᵀ [N, M] = op(b)ᵀ · op(a)ᵀ, so b comes first and nothing is moved. The
// same bits each time on one kind of GPU (one stream, no atomics).
#include "cuda/blas.cuh"
#include "cuda/common.cuh"
#include "cuda/matmul.h"
#include "cuda/view.h"

namespace stretto::cuda {
namespace {

constexpr int64_t max_batch = 65535;  // of one call; some of cuBLAS's kernels put it in grid.z

struct Types {
  cudaDataType data;
  cublasComputeType_t compute;
};

Types types_of(DType t) {
  switch (t) {
    case DType::f32:
      return {CUDA_R_32F, CUBLAS_COMPUTE_32F};
    case DType::f64:
      return {CUDA_R_64F, CUBLAS_COMPUTE_64F};
    case DType::bf16:
      return {CUDA_R_16BF, CUBLAS_COMPUTE_32F};
    default:
      fail("matmul", "got ", t, " on CUDA; accepted: f32, f64, bf16");
  }
}

}  // namespace

Tensor matmul(const Tensor& a, const Tensor& b, bool transpose_a, bool transpose_b) {
  const int64_t dims = a.dim();
  const int64_t m = a.size(transpose_a ? -1 : -2), k = a.size(transpose_a ? -2 : -1);
  const int64_t n = b.size(transpose_b ? -2 : -1);
  Shape shape = a.shape();
  shape[dims - 2] = m;
  shape[dims - 1] = n;
  Tensor out = empty_like(a, shape);
  if (out.numel() == 0) return out;
  if (k == 0) {
    fill(out, 0);
    return out;
  }

  const bool shared_b = b.dim() == 2;
  int64_t batch = out.numel() / (m * n), rows = m;
  if (shared_b && !transpose_a) {  // one tall product
    rows = batch * m;
    batch = 1;
  }
  const int64_t stride_a = m * k, stride_b = shared_b ? 0 : k * n, stride_out = m * n;
  const Types types = types_of(a.dtype());
  const float one_f = 1, zero_f = 0;
  const double one_d = 1, zero_d = 0;
  const bool f64_scale = types.compute == CUBLAS_COMPUTE_64F;
  const void* one = f64_scale ? static_cast<const void*>(&one_d) : &one_f;
  const void* zero = f64_scale ? static_cast<const void*>(&zero_d) : &zero_f;
  const Blas handle(a.device().index);
  const int64_t item = item_size(a.dtype());
  for (int64_t first = 0; first < batch; first += max_batch) {
    auto at = [&](const Tensor& x, int64_t stride) {
      return static_cast<char*>(x.raw_data()) + first * stride * item;
    };
    STRETTO_CUBLAS(cublasGemmStridedBatchedEx_64(
        handle, transpose_b ? CUBLAS_OP_T : CUBLAS_OP_N, transpose_a ? CUBLAS_OP_T : CUBLAS_OP_N, n,
        rows, k, one, at(b, stride_b), types.data, transpose_b ? k : n, stride_b, at(a, stride_a),
        types.data, transpose_a ? m : k, stride_a, zero, at(out, stride_out), types.data, n,
        stride_out, std::min(max_batch, batch - first), types.compute, CUBLAS_GEMM_DEFAULT));
    queued("matmul", a.device().index);
  }
  return out;
}

}  // namespace stretto::cuda
