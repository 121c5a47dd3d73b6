// libcublas: products as plain loops, column-major, as documented.
#include <cublas_v2.h>

#include <algorithm>

#include "products.h"
#include "streams.h"

namespace {

using namespace interpreter;

struct Handle {
  void* stream = nullptr;
  bool has_workspace = false;  // of the caller, for this stream
  u32 math = CUBLAS_DEFAULT_MATH;
};

Handle& of(cublasHandle_t h) { return *reinterpret_cast<Handle*>(h); }

cublasStatus_t refuse(const std::string& why) {
  verdict("cublas: " + why);
  return CUBLAS_STATUS_EXECUTION_FAILED;
}

/// Why a product of Stretto must not run with these settings, although cuBLAS would; null: it may.
const char* forbidden(const Handle& h, cudaDataType type, cublasComputeType_t compute) {
  if (!h.has_workspace)
    return "a product without a workspace of the caller; cublasSetStream() resets it";
  if (type == CUDA_R_32F && h.math & CUBLAS_TF32_TENSOR_OP_MATH) return "f32 products in TF32";
  if (type == CUDA_R_16BF && !(h.math & CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION))
    return "bf16 products with partial sums in bf16";
  if (compute != (type == CUDA_R_64F ? CUBLAS_COMPUTE_64F : CUBLAS_COMPUTE_32F))
    return "a compute type of less precision";
  return nullptr;
}

}  // namespace

extern "C" {

cublasStatus_t cublasCreate_v2(cublasHandle_t* h) {
  if (refuse_in_capture("cublasCreate", true)) return CUBLAS_STATUS_NOT_INITIALIZED;
  *h = reinterpret_cast<cublasHandle_t>(new Handle);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasDestroy_v2(cublasHandle_t h) {
  delete reinterpret_cast<Handle*>(h);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasSetStream_v2(cublasHandle_t h, cudaStream_t stream) {
  of(h).stream = stream;
  of(h).has_workspace = false;  // as documented
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasSetWorkspace_v2(cublasHandle_t h, void* workspace, size_t bytes) {
  if (!workspace || u64(workspace) % 256 != 0 || bytes == 0 ||
      DeviceMemory::get().allocated(u64(workspace), bytes) != bytes)
    return CUBLAS_STATUS_INVALID_VALUE;
  of(h).has_workspace = true;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasSetMathMode(cublasHandle_t h, cublasMath_t mode) {
  of(h).math = mode;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasSetPointerMode_v2(cublasHandle_t, cublasPointerMode_t mode) {
  return mode == CUBLAS_POINTER_MODE_HOST ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_NOT_SUPPORTED;
}
size_t cublasGetCudartVersion() { return CUDART_VERSION; }
const char* cublasGetStatusString(cublasStatus_t status) {
  return status == CUBLAS_STATUS_SUCCESS         ? "CUBLAS_STATUS_SUCCESS"
         : status == CUBLAS_STATUS_INVALID_VALUE ? "CUBLAS_STATUS_INVALID_VALUE"
         : status == CUBLAS_STATUS_NOT_SUPPORTED ? "CUBLAS_STATUS_NOT_SUPPORTED"
                                                 : "CUBLAS_STATUS_EXECUTION_FAILED";
}

cublasStatus_t cublasGemmStridedBatchedEx_64(
    cublasHandle_t handle, cublasOperation_t op_a, cublasOperation_t op_b, int64_t m, int64_t n,
    int64_t k, const void* alpha, const void* a, cudaDataType type, int64_t lda,
    long long int stride_a, const void* b, cudaDataType type_b, int64_t ldb, long long int stride_b,
    const void* beta, void* c, cudaDataType type_c, int64_t ldc, long long int stride_c,
    int64_t batch, cublasComputeType_t compute, cublasGemmAlgo_t) {
  const bool ta = op_a != CUBLAS_OP_N, tb = op_b != CUBLAS_OP_N;
  if (m < 0 || n < 0 || k < 0 || lda < std::max<int64_t>(1, ta ? k : m) ||
      ldb < std::max<int64_t>(1, tb ? n : k) || ldc < std::max<int64_t>(1, m) || batch < 0)
    return CUBLAS_STATUS_INVALID_VALUE;
  const bool known = type == CUDA_R_64F || type == CUDA_R_32F || type == CUDA_R_16BF;
  if (!known || type_b != type ||
      (type_c != type && !(type == CUDA_R_16BF && type_c == CUDA_R_32F)) ||
      (compute == CUBLAS_COMPUTE_64F) != (type == CUDA_R_64F))
    return CUBLAS_STATUS_NOT_SUPPORTED;
  if (const char* const why = forbidden(of(handle), type, compute)) return refuse(why);
  if (m == 0 || n == 0 || batch == 0) return CUBLAS_STATUS_SUCCESS;
  if (batch > 65535) return refuse("a batch of " + std::to_string(batch) + "; grids go to 65535");
  if (batch > 1 && stride_c < (n - 1) * ldc + m) return refuse("results of a batch overlap");
  const bool wide = compute == CUBLAS_COMPUTE_64F;
  const double al = wide ? *static_cast<const double*>(alpha) : *static_cast<const float*>(alpha);
  const double be = wide ? *static_cast<const double*>(beta) : *static_cast<const float*>(beta);
  const Matrix out{c, ldc, stride_c, false};
  const Product p{m,   n,   k,    al,    be, {a, lda, stride_a, ta}, {b, ldb, stride_b, tb},
                  out, out, type, type_c};
  const int error = submit(of(handle).stream, "cublasGemm", [=] {
    for (s64 i = 0; i < batch; ++i)
      wide ? p.run<double>("cublasGemm", i) : p.run<float>("cublasGemm", i);
  });
  return error == 0 ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_EXECUTION_FAILED;
}
cublasStatus_t cublasGemmEx_64(cublasHandle_t h, cublasOperation_t op_a, cublasOperation_t op_b,
                               int64_t m, int64_t n, int64_t k, const void* alpha, const void* a,
                               cudaDataType ta, int64_t lda, const void* b, cudaDataType tb,
                               int64_t ldb, const void* beta, void* c, cudaDataType tc, int64_t ldc,
                               cublasComputeType_t compute, cublasGemmAlgo_t algorithm) {
  return cublasGemmStridedBatchedEx_64(h, op_a, op_b, m, n, k, alpha, a, ta, lda, 0, b, tb, ldb, 0,
                                       beta, c, tc, ldc, 0, 1, compute, algorithm);
}
cublasStatus_t cublasGemmStridedBatchedEx(cublasHandle_t h, cublasOperation_t op_a,
                                          cublasOperation_t op_b, int m, int n, int k,
                                          const void* alpha, const void* a, cudaDataType ta,
                                          int lda, long long int sa, const void* b, cudaDataType tb,
                                          int ldb, long long int sb, const void* beta, void* c,
                                          cudaDataType tc, int ldc, long long int sc, int batch,
                                          cublasComputeType_t compute, cublasGemmAlgo_t algorithm) {
  return cublasGemmStridedBatchedEx_64(h, op_a, op_b, m, n, k, alpha, a, ta, lda, sa, b, tb, ldb,
                                       sb, beta, c, tc, ldc, sc, batch, compute, algorithm);
}
cublasStatus_t cublasGemmEx(cublasHandle_t h, cublasOperation_t op_a, cublasOperation_t op_b, int m,
                            int n, int k, const void* alpha, const void* a, cudaDataType ta,
                            int lda, const void* b, cudaDataType tb, int ldb, const void* beta,
                            void* c, cudaDataType tc, int ldc, cublasComputeType_t compute,
                            cublasGemmAlgo_t algorithm) {
  return cublasGemmStridedBatchedEx_64(h, op_a, op_b, m, n, k, alpha, a, ta, lda, 0, b, tb, ldb, 0,
                                       beta, c, tc, ldc, 0, 1, compute, algorithm);
}

}  // extern "C"
