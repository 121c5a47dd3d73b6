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

// The first error since the last report: of an index, or of a head (value 0).
struct Report {
  int64_t number;  // of the check; 0: no error
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

/// Reports the first head whose totals [batch, heads, m] are all ≤ eps, if any of the `keys` keys is not
/// padding; `padding` may be null. Usually a thread reads one total of its head.
template <class T>
__global__ void __launch_bounds__(threads)
    find_dead_head(const T* totals, int64_t batch, int64_t heads, int64_t m, T eps,
                   const uint8_t* padding, int64_t keys, int64_t number, Report* report) {
  int64_t first = heads;
#pragma unroll 1
  for (int64_t h = threadIdx.x; h < heads && first == heads; h += threads) {
    bool dead = true;
#pragma unroll 1
    for (int64_t i = 0; i < batch * m && dead; ++i)
      dead = totals[(i / m * heads + h) * m + i % m] <= eps;  // NaN: not dead
    if (dead) first = h;
  }
  first = combine<threads>(first, Min());
  if (threadIdx.x > 0 || first == heads || report->number != 0) return;
  bool any = !padding;
#pragma unroll 1
  for (int64_t j = 0; j < keys && !any; ++j) any = padding[j] == 0;
  if (any) *report = {number, first, 0};
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

// Queues a check: calls start(number, report) to launch it.
template <class Start>
void check_later(const char* op, int device, IndexText text, const Start& start) {
  OfDevice& own = of_device(device);
  std::unique_lock lock(own.mutex);
  if (own.pending.size() >= most_pending && !capturing(device)) {
    lock.unlock();
    synchronize(device);
    lock.lock();
  }
  make_place(own, device);
  (capturing(device) ? own.captured : own.pending).push_back({++own.checks, op, std::move(text)});
  start(own.checks, own.report);
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
  check_later(op, device, std::move(text), [&](int64_t number, Report* report) {
    launch(op, device, find_outside, 1, threads, ids.data<int64_t>(), n, size, ignored, number,
           report);
  });
  launch(op, device, replace_wrong, blocks_for(n, 256), 256, safe.data<int64_t>(),
         ids.data<int64_t>(), n, size, ignored);
  return safe;
}

void check_heads(const char* op, const Tensor& totals, double eps, const Tensor& padding,
                 IndexText text) {
  const int device = totals.device().index;
  const uint8_t* const padded = data_or_null<uint8_t>(padding);
  check_later(op, device, std::move(text), [&](int64_t number, Report* report) {
    dispatch_among<double, float>(totals.dtype(), [&]<class T>() {
      launch(op, device, find_dead_head<T>, 1, threads, static_cast<const T*>(totals.data<T>()),
             totals.size(0), totals.size(1), totals.size(2), T(eps), padded,
             padded ? padding.numel() : 0, number, report);
    });
  });
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
  // Another thread's copy to `fetched` may be in flight; the error may then name a wrong position.
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
