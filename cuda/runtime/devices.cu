// Which GPUs exist, and which of them the library can use.
#include <algorithm>
#include <string>

#include "core/gpu_runtime.h"
#include "cuda/runtime/runtime.h"

namespace stretto::cuda {
namespace {

constexpr int built_for[] = {__CUDA_ARCH_LIST__};  // 900 = compute capability 9.0
constexpr int oldest = *std::min_element(std::begin(built_for), std::end(built_for));

std::string version(int v) { return str(v / 1000, ".", v % 1000 / 10); }

struct Devices {
  int count = 0;  // usable ones only: counting ends at the first GPU that cannot run the kernels
  std::string text;
};

Devices find_devices() {
  int driver = 0;
  cudaDriverGetVersion(&driver);
  const std::string built = str("CUDA ", version(CUDART_VERSION), ", ");
  int n = 0;
  const cudaError_t error = cudaGetDeviceCount(&n);
  cudaGetLastError();  // a query must not leave an error behind for the next call
  if (error == cudaErrorInsufficientDriver) {  // 35
    return {0, built + (driver == 0 ? std::string("but no NVIDIA driver is installed here")
                                    : str("but the NVIDIA driver is too old: it supports CUDA ",
                                          version(driver), "; update the driver"))};
  }
  if (error == cudaErrorNoDevice || (error == cudaSuccess && n == 0)) {  // 100
    return {0, built +
                   "but the NVIDIA driver finds no GPU: see nvidia-smi, and whether "
                   "CUDA_VISIBLE_DEVICES hides it"};
  }
  if (error != cudaSuccess) {
    return {0, str(built, "but querying the GPUs failed: ", cudaGetErrorString(error), " (",
                   cudaGetErrorName(error), ")")};
  }

  Devices found{0, str(built, "driver for CUDA ", version(driver))};
  for (int i = 0; i < n; ++i) {
    cudaDeviceProp properties;
    STRETTO_CUDA(cudaGetDeviceProperties(&properties, i));
    const bool usable = properties.major * 100 + properties.minor * 10 >= oldest;
    if (usable && found.count == i) ++found.count;
    found.text += str(i == 0 ? ": " : "; ", Device(DeviceType::cuda, i), " ", properties.name, ", ",
                      properties.totalGlobalMem >> 20, " MiB, compute capability ",
                      properties.major, ".", properties.minor);
    if (!usable) {
      found.text += str(" (too old for this build, which supports ", oldest / 100, ".",
                        oldest / 10 % 10, " and newer: set CMAKE_CUDA_ARCHITECTURES)");
    }
  }
  return found;
}

const Devices& devices() {
  static const Devices found = find_devices();
  return found;
}

}  // namespace

int device_count() { return devices().count; }

std::string description() { return devices().text; }

int64_t shared_memory(int device) {
  int bytes = 0;
  STRETTO_CUDA(cudaDeviceGetAttribute(&bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin, device));
  return bytes;
}

}  // namespace stretto::cuda
