// The part of cuBLAS that cuda/matmul.cu and cuda/blas.cu use, as plain loops; column-major, as its
// documentation has it. See cuda_runtime.h beside this file.
#pragma once

#include "core/dtype.h"
#include "cuda_runtime.h"

enum cublasStatus_t { CUBLAS_STATUS_SUCCESS = 0, CUBLAS_STATUS_INVALID_VALUE = 7 };
enum cublasOperation_t { CUBLAS_OP_N, CUBLAS_OP_T };
enum cublasComputeType_t { CUBLAS_COMPUTE_32F, CUBLAS_COMPUTE_64F };
enum cublasGemmAlgo_t { CUBLAS_GEMM_DEFAULT };
enum cublasMath_t {
  CUBLAS_DEFAULT_MATH = 0,
  CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION = 16
};
enum cudaDataType { CUDA_R_32F, CUDA_R_64F, CUDA_R_16BF };
using cublasHandle_t = struct cublasContext*;

inline const char* cublasGetStatusString(cublasStatus_t) { return "CUBLAS_STATUS"; }
inline cublasStatus_t cublasCreate(cublasHandle_t* h) {
  *h = reinterpret_cast<cublasHandle_t>(std::malloc(1));
  return CUBLAS_STATUS_SUCCESS;
}
inline cublasStatus_t cublasDestroy(cublasHandle_t h) {
  return std::free(h), CUBLAS_STATUS_SUCCESS;
}
inline cublasStatus_t cublasSetMathMode(cublasHandle_t, cublasMath_t) {
  return CUBLAS_STATUS_SUCCESS;
}

inline cublasStatus_t cublasGemmStridedBatchedEx_64(
    cublasHandle_t, cublasOperation_t op_a, cublasOperation_t op_b, int64_t m, int64_t n, int64_t k,
    const void* alpha, const void* a, cudaDataType type, int64_t lda, long long stride_a,
    const void* b, cudaDataType, int64_t ldb, long long stride_b, const void* beta, void* c,
    cudaDataType, int64_t ldc, long long stride_c, int64_t batch, cublasComputeType_t compute,
    cublasGemmAlgo_t) {
  if (lda < std::max<int64_t>(1, op_a == CUBLAS_OP_N ? m : k) ||
      ldb < std::max<int64_t>(1, op_b == CUBLAS_OP_N ? k : n) || ldc < std::max<int64_t>(1, m) ||
      batch > 65535)
    return CUBLAS_STATUS_INVALID_VALUE;
  auto run = [&](auto tag, auto scale) {
    using T = decltype(tag);
    using C = decltype(scale);
    const C al = *static_cast<const C*>(alpha), be = *static_cast<const C*>(beta);
    for (int64_t z = 0; z < batch; ++z) {
      const T* pa = static_cast<const T*>(a) + z * stride_a;
      const T* pb = static_cast<const T*>(b) + z * stride_b;
      T* pc = static_cast<T*>(c) + z * stride_c;
      for (int64_t j = 0; j < n; ++j) {
        for (int64_t i = 0; i < m; ++i) {
          C sum = 0;
          for (int64_t l = 0; l < k; ++l)
            sum += C(pa[op_a == CUBLAS_OP_N ? i + l * lda : l + i * lda]) *
                   C(pb[op_b == CUBLAS_OP_N ? l + j * ldb : j + l * ldb]);
          pc[i + j * ldc] = T(be == C(0) ? al * sum : al * sum + be * C(pc[i + j * ldc]));
        }
      }
    }
  };
  if (compute == CUBLAS_COMPUTE_64F) {
    run(double(), double());
  } else if (type == CUDA_R_16BF) {
    run(stretto::BFloat16(), float());
  } else {
    run(float(), float());
  }
  return CUBLAS_STATUS_SUCCESS;
}
