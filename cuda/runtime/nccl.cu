// NCCL messages, on a stream of their own, and the sums of received values. Any length. Tested by
// whole programs, whose checkpoints must equal those of a single process, with tests/nccl in place
// of NCCL; it has not been run with NCCL itself.
#include <dlfcn.h>
#include <sched.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <cstring>

#include "core/gpu_channel.h"
#include "cuda/runtime/common.cuh"
#include "cuda/runtime/nccl_interface.h"

namespace stretto::cuda {
namespace {

struct Library {
  std::string missing;  // why the library cannot be used
  nccl::GetVersion version = nullptr;
  nccl::GetUniqueId unique_id = nullptr;
  nccl::CommInitRankConfig init = nullptr;
  nccl::CommAbort abort = nullptr;
  nccl::CommGetAsyncError async_error = nullptr;
  nccl::GetErrorString error_string = nullptr;
  nccl::GetLastError last_error = nullptr;
  nccl::Send send = nullptr;
  nccl::Recv recv = nullptr;
  nccl::GroupStart group_start = nullptr;
  nccl::GroupEnd group_end = nullptr;

  Library() {
    const char* const place = std::getenv("STRETTO_NCCL");
    void* const library = ::dlopen(place ? place : "libnccl.so.2", RTLD_NOW | RTLD_LOCAL);
    if (!library) {
      missing = str(::dlerror(), " (set STRETTO_NCCL to use another library)");
      return;
    }
    load(library, version, "ncclGetVersion");
    load(library, unique_id, "ncclGetUniqueId");
    load(library, init, "ncclCommInitRankConfig");
    load(library, abort, "ncclCommAbort");
    load(library, async_error, "ncclCommGetAsyncError");
    load(library, error_string, "ncclGetErrorString");
    load(library, last_error, "ncclGetLastError");
    load(library, send, "ncclSend");
    load(library, recv, "ncclRecv");
    load(library, group_start, "ncclGroupStart");
    load(library, group_end, "ncclGroupEnd");
    constexpr int least = 21400;  // for calls that do not block
    int number = 0;
    if (missing.empty() && (version(&number) != nccl::success || number < least))
      missing = str("NCCL ", number / 10000, ".", number / 100 % 100, " is older than 2.14");
  }

 private:
  template <class F>
  void load(void* library, F& f, const char* name) {
    f = reinterpret_cast<F>(::dlsym(library, name));
    if (!f && missing.empty()) missing = str("NCCL has no ", name);
  }
};

const Library& library() {
  static const Library opened;
  return opened;
}

void need(int code, const char* call, nccl::Comm comm = nullptr) {
  if (code == nccl::success || code == nccl::in_progress) return;
  const char* const more = library().last_error(comm);
  fail("NCCL", call, ": ", library().error_string(code), more && *more ? "; " : "",
       more ? more : "");
}

/// to += from [n]
template <class T>
__global__ void add_numbers(T* to, const T* from, int64_t n) {
#pragma unroll 1
  for (int64_t i = thread_index(); i < n; i += thread_count()) to[i] += from[i];
}

class NcclChannel final : public Channel {
 public:
  NcclChannel(const nccl::UniqueId& id, int rank, int size, int device, int seconds)
      : device_(device), seconds_(seconds) {
    use(device);
    STRETTO_CUDA(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking));
    STRETTO_CUDA(cudaEventCreateWithFlags(&event_, cudaEventDisableTiming));
    try {
      nccl::Config config;
      const char* const call = "ncclCommInitRankConfig";
      complete(library().init(&comm_, size, id, rank, &config), call,
               "not all processes have called it");
    } catch (...) {
      release();
      throw;
    }
  }
  ~NcclChannel() override { release(); }

  void follow() override { order(stream(device_), stream_); }
  void lead() override { order(stream_, stream(device_)); }

  void send_recv(int peer, const void* out, size_t n_out, void* in, size_t n_in) override {
    use(device_);
    need(library().group_start(), "ncclGroupStart", comm_);
    try {
      if (n_out > 0)
        need(library().send(out, n_out, nccl::int8, peer, comm_, stream_), "ncclSend", comm_);
      if (n_in > 0)
        need(library().recv(in, n_in, nccl::int8, peer, comm_, stream_), "ncclRecv", comm_);
    } catch (...) {
      library().group_end();  // this thread's next group would be part of this one
      throw;
    }
    complete(library().group_end(), "ncclGroupEnd", str("process ", peer, " has not connected"));
  }

  void add(DType type, void* to, const void* from, int64_t n) override {
    if (n == 0) return;
    use(device_);
    if (type == f64) {
      add_as<double>(to, from, n);
    } else {
      add_as<float>(to, from, n);
    }
  }

  bool done() override {
    use(device_);
    const cudaError_t state = cudaStreamQuery(stream_);
    if (state != cudaErrorNotReady) check_call(state, "NCCL");
    int code = nccl::success;  // queried last: it may be why the work has ended
    need(library().async_error(comm_, &code), "ncclCommGetAsyncError", comm_);
    need(code, "a message", comm_);
    return state == cudaSuccess;
  }

 private:
  // Waits until the work of a call is on the stream. The first call between two processes waits for
  // the other one.
  void complete(int code, const char* call, const std::string& silent) {
    using Clock = std::chrono::steady_clock;
    const auto begin = Clock::now(), end = begin + std::chrono::seconds(seconds_);
    while (code == nccl::in_progress) {
      need(library().async_error(comm_, &code), "ncclCommGetAsyncError", comm_);
      if (code != nccl::in_progress) break;
      check(Clock::now() < end, "NCCL", call, ": ", silent, " within ", seconds_,
            " seconds (STRETTO_PROCESS_TIMEOUT sets the time limit)");
      // Later messages complete at once, or nearly; a sleep would delay each of them.
      Clock::now() < begin + std::chrono::microseconds(200) ? ::sched_yield() : ::usleep(50);
    }
    need(code, call, comm_);
  }
  void order(cudaStream_t first, cudaStream_t then) {
    use(device_);
    STRETTO_CUDA(cudaEventRecord(event_, first));
    STRETTO_CUDA(cudaStreamWaitEvent(then, event_, 0));
  }
  template <class T>
  void add_as(void* to, const void* from, int64_t n) {
    cudaLaunchConfig_t config = {};
    config.gridDim = blocks_for(n, 256);
    config.blockDim = 256;
    config.stream = stream_;
    STRETTO_CUDA(cudaLaunchKernelEx(&config, add_numbers<T>, static_cast<T*>(to),
                                    static_cast<const T*>(from), n));
  }
  // Aborts: a message that waits for a process which has ended would never complete.
  void release() noexcept {
    if (cudaSetDevice(device_) != cudaSuccess) return;
    if (comm_) library().abort(comm_);
    if (event_) cudaEventDestroy(event_);
    if (stream_) cudaStreamDestroy(stream_);
  }

  const int device_, seconds_;
  nccl::Comm comm_ = nullptr;
  cudaStream_t stream_ = nullptr;
  cudaEvent_t event_ = nullptr;
};

}  // namespace

std::string channel_missing() { return library().missing; }

std::string channel_id() {
  nccl::UniqueId id;
  need(library().unique_id(&id), "ncclGetUniqueId");
  return {id.internal, sizeof id.internal};
}

std::unique_ptr<Channel> open_channel(const std::string& id, int rank, int size, int device,
                                      int seconds) {
  nccl::UniqueId same;
  check(id.size() == sizeof same.internal, "NCCL", "the id has the wrong size");
  std::memcpy(same.internal, id.data(), sizeof same.internal);
  return std::make_unique<NcclChannel>(same, rank, size, device, seconds);
}

}  // namespace stretto::cuda
