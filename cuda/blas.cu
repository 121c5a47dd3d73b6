#include <mutex>
#include <vector>

#include "core/gpu_runtime.h"
#include "cuda/blas.cuh"

namespace stretto::cuda {

cublasHandle_t blas(int device) {
  // Never destroyed: CUDA may not be called after main. The driver frees them with the process.
  static std::mutex mutex;
  static auto* handles = new std::vector<cublasHandle_t>(size_t(device_count()));
  use(device);
  std::lock_guard lock(mutex);
  cublasHandle_t& handle = handles->at(size_t(device));
  if (!handle) {
    STRETTO_CUBLAS(cublasCreate(&handle));
    const auto full = CUBLAS_DEFAULT_MATH | CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION;
    STRETTO_CUBLAS(cublasSetMathMode(handle, cublasMath_t(full)));
  }
  return handle;
}

}  // namespace stretto::cuda
