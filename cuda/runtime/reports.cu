// One block examines all ids and writes nothing unless one is wrong; the copy is a launch of its
// own. Tested in tests/cuda/runtime_test.cpp.
#include <array>
#include <mutex>
#include <utility>
#include <vector>

#include "core/gpu_runtime.h"
#include "cuda/runtime/capture.h"
#include "cuda/runtime/common.cuh"
#include "cuda/runtime/reports.h"

namespace stretto::cuda {
namespace {

constexpr int threads = 1024;
constexpr size_t most_pending = 4096;

// The first wrong index since the last report.
struct Report {
  int64_t number;  // of the check; 0: no wrong index
  int64_t position, value;
};

struct Min {
  template <class C>
  __device__ C operator()(C a, C b) const {
    return a < b ? a : b;
  }
};

__device__ inline bool is_right(int64_t id, int64_t size, int64_t ignored) {
  return uint64_t(id) < uint64_t(size) || id == ignored;
}

/// safe [n] = ids [n], 0 for wrong ones
__global__ void replace_wrong(int64_t* safe, const int64_t* ids, int64_t n, int64_t size,
                              int64_t ignored) {
#pragma unroll 1
  for (int64_t i = thread_index(); i < n; i += thread_count())
    safe[i] = is_right(ids[i], size, ignored) ? ids[i] : 0;
}

/// ids [n]
__global__ void __launch_bounds__(threads)
    find_outside(const int64_t* ids, int64_t n, int64_t size, int64_t ignored, int64_t number,
                 Report* report) {
  int64_t first = n;
#pragma unroll 1
  for (int64_t i = threadIdx.x; i < n && first == n; i += threads) {
    if (!is_right(ids[i], size, ignored)) first = i;
  }
  first = combine<threads>(first, Min());
  if (threadIdx.x == 0 && first < n && report->number == 0) *report = {number, first, ids[first]};
}

struct Pending {
  int64_t number;
  const char* op;
  IndexText text;
};

struct OfDevice {
  std::mutex mutex;
  Report* report = nullptr;
  Report* fetched = nullptr;  // its copy in pinned memory
  int64_t checks = 0;
  // Checks queued since the host last waited, and those queued before: another thread may queue one
  // between a wait and its report.
  std::vector<Pending> pending, before;
  std::vector<Pending> captured;  // never removed: each replay repeats these checks
};

// The caller holds the mutex.
void make_place(OfDevice& own, int device) {
  use(device);
  if (own.report) return;
  STRETTO_CUDA(cudaMallocHost(reinterpret_cast<void**>(&own.fetched), sizeof(Report)));
  *own.fetched = {};
  STRETTO_CUDA(cudaMalloc(reinterpret_cast<void**>(&own.report), sizeof(Report)));
  STRETTO_CUDA(cudaMemsetAsync(own.report, 0, sizeof(Report), stream(device)));
}

OfDevice& of_device(int device) {
  static auto* all = new std::array<OfDevice, 16>;  // never destroyed, like the streams
  return all->at(size_t(device));
}

}  // namespace

void ready_reports(int device) {
  OfDevice& own = of_device(device);
  const std::lock_guard lock(own.mutex);
  make_place(own, device);
}

Tensor checked_indices(const char* op, const Tensor& ids, int64_t size, int64_t ignored,
                       IndexText text) {
  const Tensor safe = empty_like(ids);
  const int64_t n = ids.numel();
  if (n == 0) return safe;
  const int device = ids.device().index;
  OfDevice& own = of_device(device);
  std::unique_lock lock(own.mutex);
  if (own.pending.size() >= most_pending && !capturing(device)) {
    lock.unlock();
    synchronize(device);
    lock.lock();
  }
  make_place(own, device);
  (capturing(device) ? own.captured : own.pending).push_back({++own.checks, op, std::move(text)});
  launch(op, device, find_outside, 1, threads, ids.data<int64_t>(), n, size, ignored, own.checks,
         own.report);
  launch(op, device, replace_wrong, blocks_for(n, 256), 256, safe.data<int64_t>(),
         ids.data<int64_t>(), n, size, ignored);
  return safe;
}

void fetch_reports(int device) {
  OfDevice& own = of_device(device);
  const std::lock_guard lock(own.mutex);
  if (!own.report || (own.pending.empty() && own.before.empty() && own.captured.empty())) return;
  STRETTO_CUDA(cudaMemcpyAsync(own.fetched, own.report, sizeof(Report), cudaMemcpyDeviceToHost,
                               stream(device)));
}

void raise_reports(int device) {
  OfDevice& own = of_device(device);
  const std::lock_guard lock(own.mutex);
  if (!own.report) return;
  own.before.swap(own.pending);
  const std::vector<Pending> oldest = std::exchange(own.pending, {});
  const Report found = std::exchange(*own.fetched, {});
  if (found.number == 0) return;
  STRETTO_CUDA(cudaMemsetAsync(own.report, 0, sizeof(Report), stream(device)));
  for (const std::vector<Pending>& some : {oldest, own.before, own.captured})
    for (const Pending& one : some)
      if (one.number == found.number) fail(one.op, one.text(found.position, found.value));
}

}  // namespace stretto::cuda
