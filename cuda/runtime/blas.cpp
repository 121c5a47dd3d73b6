#include "cuda/runtime/blas.cuh"

#include <array>
#include <memory>

#include "core/gpu_runtime.h"

namespace stretto::cuda {
namespace {

struct OfDevice {
  std::mutex mutex;
  cublasHandle_t handle = nullptr;
  std::unique_ptr<Storage> workspace;
};

OfDevice& of_device(int device) {
  // Never destroyed: CUDA may not be called after main. The driver frees them
  // when the process ends.
  static auto* all = new std::array<OfDevice, max_gpus>;
  return all->at(size_t(device));
}

}  // namespace

Blas::Blas(int device) {
  const cudaStream_t on = stream(device);
  OfDevice& one = of_device(device);
  lock_ = std::unique_lock(one.mutex);
  if (!one.handle) {
    cublasHandle_t made = nullptr;
    auto workspace = std::make_unique<Storage>(workspace_bytes, Device(DeviceType::cuda, device));
    STRETTO_CUBLAS(cublasCreate(&made));
    const auto full = CUBLAS_DEFAULT_MATH | CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION;
    STRETTO_CUBLAS(cublasSetMathMode(made, cublasMath_t(full)));
    STRETTO_CUBLAS(cublasSetStream(made, on));
    STRETTO_CUBLAS(cublasSetWorkspace(made, workspace->data, size_t(workspace_bytes)));
    one.handle = made;
    one.workspace = std::move(workspace);
  }
  handle_ = one.handle;
  workspace_ = one.workspace->data;
}

}  // namespace stretto::cuda
