// Memory of the GPU, and copies between it and the host.
//
// Copies go through pinned memory. Copies from the host return when the source may be reused,
// copies to the host when the values have arrived. Copies within a device are queued like a kernel.
#include <algorithm>
#include <cstring>
#include <memory>
#include <mutex>
#include <vector>

#include "core/gpu_runtime.h"
#include "cuda/runtime/capture.h"
#include "cuda/runtime/reports.h"
#include "cuda/runtime/runtime.h"

namespace stretto::cuda {
namespace {

// Two halves of pinned memory. Copies, which are only queued, use a half from its beginning to its
// end; before a half is used again, upload and download wait for the last of them.
class Staging {
 public:
  static constexpr int64_t half = int64_t(16) << 20;

  explicit Staging(int device) : device_(device) {
    STRETTO_CUDA(cudaMallocHost(&memory_, size_t(2 * half)));
    for (cudaEvent_t& event : left_)
      STRETTO_CUDA(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
  }

  void upload(char* to, const char* from, int64_t bytes) {
    const cudaStream_t on = stream(device_);
    const std::lock_guard lock(mutex_);
    for (int64_t at = 0; at < bytes; at += half) {
      const int64_t n = std::min(half, bytes - at);
      char* room = take(n, on);
      std::memcpy(room, from + at, size_t(n));
      STRETTO_CUDA(cudaMemcpyAsync(to + at, room, size_t(n), cudaMemcpyHostToDevice, on));
    }
  }

  // Copies a chunk to pinned memory while the previous one is copied to its destination.
  void download(char* to, const char* from, int64_t bytes) {
    const cudaStream_t on = stream(device_);
    const std::lock_guard lock(mutex_);
    const char* before = nullptr;
    int64_t n_before = 0;
    for (int64_t at = 0; at < bytes; at += half) {
      const int64_t n = std::min(half, bytes - at);
      char* room = take(n, on);
      if (before) STRETTO_CUDA(cudaStreamSynchronize(on));
      STRETTO_CUDA(cudaMemcpyAsync(room, from + at, size_t(n), cudaMemcpyDeviceToHost, on));
      if (before) std::memcpy(to + at - n_before, before, size_t(n_before));
      before = room, n_before = n;
    }
    fetch_reports(device_);
    STRETTO_CUDA(cudaStreamSynchronize(on));
    std::memcpy(to + bytes - n_before, before, size_t(n_before));
    used_ = 0;  // nothing is queued any more
  }

 private:
  char* take(int64_t n, cudaStream_t on) {
    if (used_ + n > half) {
      STRETTO_CUDA(cudaEventRecord(left_[current_], on));
      current_ ^= 1;
      STRETTO_CUDA(cudaEventSynchronize(left_[current_]));
      used_ = 0;
    }
    char* room = static_cast<char*>(memory_) + current_ * half + used_;
    used_ += (n + 63) / 64 * 64;
    return room;
  }

  std::mutex mutex_;
  const int device_;
  void* memory_ = nullptr;
  cudaEvent_t left_[2];  // the last copy of each half, recorded when switching to the other
  int current_ = 0;
  int64_t used_ = 0;
};

Staging& staging(int device) {
  use(device);
  // Never destroyed, like the streams.
  static std::mutex mutex;
  static auto* all = new std::vector<std::unique_ptr<Staging>>(size_t(device_count()));
  const std::lock_guard lock(mutex);
  std::unique_ptr<Staging>& one = all->at(size_t(device));
  if (!one) one = std::make_unique<Staging>(device);
  return *one;
}

}  // namespace

void* allocate(int64_t bytes, int device) {
  use(device);
  void* block = nullptr;
  const cudaError_t error = cudaMalloc(&block, size_t(bytes));
  if (error == cudaErrorMemoryAllocation) {
    cudaGetLastError();
    return nullptr;
  }
  check_call(error, "cudaMalloc");
  return block;
}

void free(void* block, int device) {
  if (free_later(block, device)) return;
  use(device);
  STRETTO_CUDA(cudaFree(block));
}

void copy(void* to, Device to_device, const void* from, Device from_device, int64_t bytes) {
  if (bytes == 0) return;
  if (from_device.is_cpu() || to_device.is_cpu())
    refuse_in_capture(from_device.is_cpu() ? "a copy from the host" : "a copy to the host",
                      from_device.is_cpu() ? to_device.index : from_device.index);
  if (from_device.is_cpu()) {
    staging(to_device.index).upload(static_cast<char*>(to), static_cast<const char*>(from), bytes);
  } else if (to_device.is_cpu()) {
    staging(from_device.index)
        .download(static_cast<char*>(to), static_cast<const char*>(from), bytes);
    raise_reports(from_device.index);
  } else if (to_device == from_device) {
    STRETTO_CUDA(cudaMemcpyAsync(to, from, size_t(bytes), cudaMemcpyDeviceToDevice,
                                 stream(to_device.index)));
    queued("copy", to_device.index);
  } else {  // two streams: wait for both
    synchronize(from_device.index);
    synchronize(to_device.index);
    STRETTO_CUDA(cudaMemcpyPeerAsync(to, to_device.index, from, from_device.index, size_t(bytes),
                                     stream(to_device.index)));
    synchronize(to_device.index);
  }
}

void synchronize(int device) {
  const cudaStream_t device_stream = stream(device);
  refuse_in_capture("waiting for the device", device);
  fetch_reports(device);
  STRETTO_CUDA(cudaStreamSynchronize(device_stream));
  raise_reports(device);
}

}  // namespace stretto::cuda
