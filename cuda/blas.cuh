// cuBLAS: one handle per device, on the device's stream.
#pragma once

#include <cublas_v2.h>

#include "cuda/common.cuh"

namespace stretto::cuda {

/// The device's handle, made at the first use and kept. Makes the device current. Products
/// keep full precision: no TF32, and no partial sums in bf16.
cublasHandle_t blas(int device);

inline void check_blas(cublasStatus_t status, const char* call) {
  if (status != CUBLAS_STATUS_SUCCESS) [[unlikely]]
    fail("cuda", call, " failed: ", cublasGetStatusString(status));
}
#define STRETTO_CUBLAS(call) ::stretto::cuda::check_blas(call, #call)

}  // namespace stretto::cuda
