#include <array>
#include <atomic>
#include <map>
#include <mutex>
#include <string>
#include <utility>

#include "core/device.h"
#include "core/environment.h"
#include "core/gpu_runtime.h"
#include "cuda/runtime/runtime.h"

namespace stretto::cuda {
namespace {

// The ops queued last on a device.
struct Recent {
  std::atomic<uint64_t> count = 0;
  std::array<std::atomic<const char*>, 64> names{};

  void add(const char* op) {
    names[count.fetch_add(1, std::memory_order_relaxed) % names.size()] = op;
  }
  // Newest first, each once: "softmax, add, linear".
  std::string text() const {
    std::string all;
    const uint64_t n = count;
    for (uint64_t i = 0; i < std::min<uint64_t>(n, names.size()); ++i) {
      const char* op = names[(n - 1 - i) % names.size()];
      const std::string one = str(all.empty() ? "" : ", ", op);
      if ((", " + all + ", ").find(str(", ", op, ", ")) == std::string::npos) all += one;
    }
    return all;
  }
};

Recent& recent(int device) {
  static auto* all = new std::array<Recent, max_gpus>;
  return all->at(size_t(device));
}

// Faults of kernels or of the device: any later call reports them, permanently.
bool from_a_kernel(cudaError_t error) {
  switch (error) {
    case cudaErrorIllegalAddress:
    case cudaErrorLaunchFailure:
    case cudaErrorLaunchTimeout:
    case cudaErrorMisalignedAddress:
    case cudaErrorIllegalInstruction:
    case cudaErrorInvalidAddressSpace:
    case cudaErrorInvalidPc:
    case cudaErrorHardwareStackError:
    case cudaErrorAssert:
    case cudaErrorECCUncorrectable:
    case cudaErrorNvlinkUncorrectable:
    case cudaErrorContained:
    case cudaErrorTensorMemoryLeak:
    case cudaErrorMpsClientTerminated:
    case cudaErrorUnknown:  // the driver has failed
      return true;
    default:
      return false;
  }
}

__global__ void nothing() {}

cudaStream_t make_stream(int device) {
  cudaFuncAttributes attributes;
  const cudaError_t error = cudaFuncGetAttributes(&attributes, nothing);
  check(error == cudaSuccess, "cuda", Device(DeviceType::cuda, device),
        " cannot be used: this build has no code for it: ", cudaGetErrorString(error),
        "; set CMAKE_CUDA_ARCHITECTURES");
  cudaStream_t made = nullptr;
  STRETTO_CUDA(cudaStreamCreateWithFlags(&made, cudaStreamNonBlocking));
  return made;
}

bool wait_for_each() {
  static const bool on = environment_number("STRETTO_CUDA_SYNC", 0, 1, 0) == 1;
  return on;
}

// For each device, the thread that owns its stream exclusively, identified by the address of
// a thread_local variable.
std::atomic<const void*>& owner(int device) {
  static auto* all = new std::array<std::atomic<const void*>, max_gpus>{};
  return all->at(size_t(device));
}
const void* this_thread() {
  static thread_local const char mine = 0;
  return &mine;
}

}  // namespace

void fail_call(const char* call, cudaError_t error) {
  cudaGetLastError();  // recoverable errors are reported once
  std::string more;
  if (from_a_kernel(error)) {
    int device = 0;
    cudaGetDevice(&device);
    more = str("; a kernel failed, and this process can no longer use the device. Queued last, ",
               "newest first: ", recent(device).text(),
               wait_for_each() ? "" : ". With STRETTO_CUDA_SYNC=1 the failed op is the first");
  }
  fail("cuda", call, " failed: ", cudaGetErrorString(error), " (", cudaGetErrorName(error), ")",
       more);
}

void allow_shared_memory(const char* op, int device, const void* kernel, int64_t bytes) {
  check(bytes <= shared_memory(device), op, "its kernel needs ", bytes,
        " bytes of shared memory per block; cuda:", device, " has ", shared_memory(device));
  static std::mutex mutex;
  static auto* allowed = new std::map<std::pair<const void*, int>, int64_t>;
  const std::lock_guard lock(mutex);
  int64_t& now = (*allowed)[{kernel, device}];
  if (bytes <= now) return;
  check_call(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, int(bytes)),
             op);
  now = bytes;
}

void own_stream(int device) {
  const void* nobody = nullptr;
  check(owner(device).compare_exchange_strong(nobody, this_thread()), "graph",
        "another thread is capturing a step on cuda:", device);
}
void share_stream(int device) noexcept { owner(device) = nullptr; }

cudaStream_t stream(int device) {
  // Never destroyed: CUDA may not be called after main. The driver frees them
  // when the process ends.
  static std::mutex mutex;
  static auto* streams = new std::array<std::atomic<cudaStream_t>, max_gpus>{};
  use(device);
  const void* const alone = owner(device);
  check(!alone || alone == this_thread(), "graph",
        "another thread is capturing a step on cuda:", device,
        "; no other thread may use the device until it has finished");
  std::atomic<cudaStream_t>& of_device = streams->at(size_t(device));
  if (cudaStream_t made = of_device) return made;
  const std::lock_guard lock(mutex);
  if (!of_device.load()) of_device = make_stream(device);
  return of_device;
}

void queued(const char* op, int device) {
  recent(device).add(op);
  if (!wait_for_each()) return;
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  cudaStreamIsCapturing(stream(device), &status);
  if (status == cudaStreamCaptureStatusNone) check_call(cudaStreamSynchronize(stream(device)), op);
}

}  // namespace stretto::cuda
