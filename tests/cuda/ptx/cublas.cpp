// libcublas: products as plain loops, column-major, as documented.
#include <cublas_v2.h>

#include <algorithm>

#include "products.h"

namespace {

using namespace interpreter;

struct Handle {
  void* stream = nullptr;
};

}  // namespace

extern "C" {

cublasStatus_t cublasCreate_v2(cublasHandle_t* h) {
  *h = reinterpret_cast<cublasHandle_t>(new Handle);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasDestroy_v2(cublasHandle_t h) {
  delete reinterpret_cast<Handle*>(h);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasSetStream_v2(cublasHandle_t h, cudaStream_t stream) {
  reinterpret_cast<Handle*>(h)->stream = stream;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasSetWorkspace_v2(cublasHandle_t, void*, size_t) {
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasSetMathMode(cublasHandle_t, cublasMath_t) { return CUBLAS_STATUS_SUCCESS; }
cublasStatus_t cublasSetPointerMode_v2(cublasHandle_t, cublasPointerMode_t mode) {
  return mode == CUBLAS_POINTER_MODE_HOST ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_NOT_SUPPORTED;
}
size_t cublasGetCudartVersion() { return CUDART_VERSION; }
const char* cublasGetStatusString(cublasStatus_t status) {
  return status == CUBLAS_STATUS_SUCCESS         ? "CUBLAS_STATUS_SUCCESS"
         : status == CUBLAS_STATUS_INVALID_VALUE ? "CUBLAS_STATUS_INVALID_VALUE"
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
      ldb < std::max<int64_t>(1, tb ? n : k) || ldc < std::max<int64_t>(1, m) || type_b != type ||
      (type != CUDA_R_64F && type != CUDA_R_32F && type != CUDA_R_16BF))
    return CUBLAS_STATUS_INVALID_VALUE;
  const bool wide = compute == CUBLAS_COMPUTE_64F;
  const double al = wide ? *static_cast<const double*>(alpha) : *static_cast<const float*>(alpha);
  const double be = wide ? *static_cast<const double*>(beta) : *static_cast<const float*>(beta);
  const Matrix out{c, ldc, stride_c, false};
  const Product p{m,   n,   k,    al,    be, {a, lda, stride_a, ta}, {b, ldb, stride_b, tb},
                  out, out, type, type_c};
  const int error = submit(reinterpret_cast<Handle*>(handle)->stream, "cublasGemm", [=] {
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
