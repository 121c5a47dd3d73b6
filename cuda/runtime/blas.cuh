// cuBLAS: one handle per device, on the device's stream.
#pragma once

#include <cublas_v2.h>

#include <mutex>

#include "core/storage.h"
#include "cuda/runtime/runtime.h"

namespace stretto::cuda {

/// A device's handle on its stream, with a workspace that Stretto allocates, locked: cuBLAS
/// advises against using a handle in two threads. Products have full precision: no TF32, and no
/// partial sums in bf16.
class Blas {
 public:
  /// Waits for the handle, which is created at its first use; makes the device current.
  explicit Blas(int device);
  operator cublasHandle_t() const { return handle_; }
  void* workspace() const { return workspace_; }
  static constexpr int64_t workspace_bytes = int64_t(32) << 20;  // as cuBLAS uses on Hopper

 private:
  std::unique_lock<std::mutex> lock_;
  cublasHandle_t handle_ = nullptr;
  void* workspace_ = nullptr;
};

inline void check_blas(cublasStatus_t status, const char* call) {
  if (status != CUBLAS_STATUS_SUCCESS) [[unlikely]]
    fail("cuda", call, " failed: ", cublasGetStatusString(status));
}
#define STRETTO_CUBLAS(call) ::stretto::cuda::check_blas(call, #call)

}  // namespace stretto::cuda
