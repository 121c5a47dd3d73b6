#include <mutex>
#include <vector>

#include "cuda/blas.cuh"
#include "cuda/device.h"

namespace stretto::cuda {
namespace {

struct Handles {
  std::mutex mutex;
  std::vector<cublasHandle_t> of = std::vector<cublasHandle_t>(size_t(device_count()));
  ~Handles() {  // made after the runtime started, so destroyed before it stops
    for (cublasHandle_t handle : of)
      if (handle) cublasDestroy(handle);
  }
};

}  // namespace

cublasHandle_t blas(int device) {
  static Handles handles;
  use(device);
  std::lock_guard lock(handles.mutex);
  cublasHandle_t& handle = handles.of.at(size_t(device));
  if (!handle) {
    STRETTO_CUBLAS(cublasCreate(&handle));
    STRETTO_CUBLAS(cublasSetMathMode(
        handle,
        cublasMath_t(CUBLAS_DEFAULT_MATH | CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION)));
  }
  return handle;
}

}  // namespace stretto::cuda
