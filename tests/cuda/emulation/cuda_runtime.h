// A GPU made of plain C++, for machines without one: g++ compiles the .cu files against this header
// instead of the toolkit's, and the CUDA tests run. It checks what can be checked without hardware:
// indices, launch sizes, barriers that all threads reach, results. Not speed, not the compiler, not
// races between warps (though the threads' order can be turned round, which shows the common ones).
//
// Every thread of a block is a coroutine; __syncthreads and shuffles are places where it waits
// until the others have come. Blocks run one after the other, so `static` serves as shared memory.
// New device memory is filled with NaN and lies between pages that fault.
#pragma once

#include <setjmp.h>
#include <sys/mman.h>
#include <ucontext.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <tuple>
#include <vector>

#define __global__
#define __device__
#define __host__
#define __shared__ static
#define __grid_constant__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __CUDA_ARCH_LIST__ 900
#define CUDART_VERSION 13000

struct dim3 {
  unsigned x, y, z;
  dim3(unsigned x_ = 1, unsigned y_ = 1, unsigned z_ = 1) : x(x_), y(y_), z(z_) {}
};
inline dim3 gridDim, blockDim, blockIdx, threadIdx;

enum cudaError_t {
  cudaSuccess = 0,
  cudaErrorInvalidValue = 1,
  cudaErrorMemoryAllocation = 2,
  cudaErrorInvalidConfiguration = 9,
  cudaErrorInsufficientDriver = 35,
  cudaErrorNoDevice = 100,
  cudaErrorInvalidDevice = 101
};
enum cudaMemcpyKind { cudaMemcpyHostToDevice, cudaMemcpyDeviceToHost, cudaMemcpyDeviceToDevice };
struct cudaDeviceProp {
  char name[64];
  size_t totalGlobalMem;
  int major, minor;
};
struct cudaLaunchConfig_t {
  dim3 gridDim, blockDim;
};

namespace emulation {

inline constexpr size_t stack_bytes = 64 << 10;
inline constexpr int max_threads = 1024;

struct Thread {
  ucontext_t
      start;  // enters the coroutine; after that _setjmp and _longjmp switch, without system calls
  jmp_buf context;
  std::unique_ptr<char[]> stack;
  enum { ready, at_block_barrier, at_warp_barrier, done } state = done;
};

struct Block {
  std::vector<Thread> threads = std::vector<Thread>(max_threads);
  jmp_buf scheduler;
  std::function<void()> body;
  int count = 0, current = 0;
  alignas(16) char shuffle[max_threads][16];
  bool backwards = std::getenv("STRETTO_EMULATE_BACKWARDS") != nullptr;
};
inline Block& block() {
  static Block b;
  return b;
}

inline void select(int t) {
  block().current = t;
  threadIdx = dim3(unsigned(t) % blockDim.x, unsigned(t) / blockDim.x % blockDim.y,
                   unsigned(t) / (blockDim.x * blockDim.y));
}

inline void wait(decltype(Thread::state) at) {
  Block& b = block();
  Thread& self = b.threads[size_t(b.current)];
  self.state = at;
  if (_setjmp(self.context) == 0) _longjmp(b.scheduler, 1);
}

inline void thread_main() {  // one coroutine serves one place in every block
  for (;;) {
    block().body();
    wait(Thread::done);
  }
}

[[noreturn]] inline void deadlock() {
  std::fprintf(stderr, "emulated GPU: some threads wait at a barrier that others never reach\n");
  std::abort();
}

/// Lets threads from … to − 1 go on if all of them wait at `state`.
inline bool release(int from, int to, decltype(Thread::state) state) {
  Block& b = block();
  for (int t = from; t < to; ++t)
    if (b.threads[size_t(t)].state != state) return false;
  for (int t = from; t < to; ++t) b.threads[size_t(t)].state = Thread::ready;
  return true;
}

/// Runs a thread until it waits or ends.
inline void resume(Thread& thread) {
  if (_setjmp(block().scheduler) != 0) return;
  if (thread.stack) _longjmp(thread.context, 1);
  thread.stack = std::make_unique<char[]>(stack_bytes);
  getcontext(&thread.start);
  thread.start.uc_stack.ss_sp = thread.stack.get();
  thread.start.uc_stack.ss_size = stack_bytes;
  thread.start.uc_link = nullptr;
  makecontext(&thread.start, thread_main, 0);
  setcontext(&thread.start);
}

inline void run_block() {
  Block& b = block();
  b.count = int(blockDim.x * blockDim.y * blockDim.z);
  for (int t = 0; t < b.count; ++t) b.threads[size_t(t)].state = Thread::ready;
  // One warp goes as far as it can before the next one starts: where a barrier is missing, it reads
  // what is not there yet or overwrites what is still needed.
  const int warps = (b.count + 31) / 32;
  for (;;) {
    bool all_done = true;
    for (int i = 0; i < warps; ++i) {
      const int from = (b.backwards ? warps - 1 - i : i) * 32, to = std::min(from + 32, b.count);
      do {
        for (int j = from; j < to; ++j) {
          const int t = b.backwards ? to - 1 - (j - from) : j;
          Thread& thread = b.threads[size_t(t)];
          if (thread.state != Thread::ready) continue;
          select(t);
          resume(thread);
        }
      } while (release(from, to, Thread::at_warp_barrier));
      for (int t = from; t < to; ++t) all_done &= b.threads[size_t(t)].state == Thread::done;
    }
    if (all_done) return;
    if (!release(0, b.count, Thread::at_block_barrier)) deadlock();
  }
}

template <class T>
T shuffle(T value, unsigned from_lane) {
  static_assert(sizeof(T) <= 16);
  Block& b = block();
  const int self = b.current;
  std::memcpy(b.shuffle[self], &value, sizeof(T));
  wait(Thread::at_warp_barrier);
  std::memcpy(&value, b.shuffle[self / 32 * 32 + int(from_lane)], sizeof(T));
  wait(Thread::at_warp_barrier);
  return value;
}

}  // namespace emulation

inline void __syncthreads() { emulation::wait(emulation::Thread::at_block_barrier); }
template <class T>
T __shfl_xor_sync(unsigned mask, T value, int lanes) {
  if (mask != 0xffffffffu) std::abort();
  return emulation::shuffle(value, (unsigned(emulation::block().current) % 32) ^ unsigned(lanes));
}
template <class T>
T __shfl_up_sync(unsigned mask, T value, unsigned lanes) {
  if (mask != 0xffffffffu) std::abort();
  const unsigned lane = unsigned(emulation::block().current) % 32;
  return emulation::shuffle(value, lane < lanes ? lane : lane - lanes);
}
inline float __uint_as_float(uint32_t x) { return std::bit_cast<float>(x); }
inline long long __double_as_longlong(double x) { return std::bit_cast<long long>(x); }
inline uint32_t __float_as_uint(float x) { return std::bit_cast<uint32_t>(x); }

template <class... Params, class... Args>
cudaError_t cudaLaunchKernelEx(const cudaLaunchConfig_t* config, void (*kernel)(Params...),
                               Args&&... args) {
  const dim3 g = config->gridDim, b = config->blockDim;
  const uint64_t threads = uint64_t(b.x) * b.y * b.z;
  if (g.x == 0 || g.y == 0 || g.z == 0 || g.x > 0x7fffffffu || g.y > 65535 || g.z > 65535 ||
      threads == 0 || threads > 1024 || b.z > 64)
    return cudaErrorInvalidConfiguration;
  const std::tuple<std::decay_t<Params>...> values(std::forward<Args>(args)...);
  gridDim = g;
  blockDim = b;
  emulation::block().body = [&] { std::apply(kernel, values); };
  for (blockIdx.z = 0; blockIdx.z < g.z; ++blockIdx.z)
    for (blockIdx.y = 0; blockIdx.y < g.y; ++blockIdx.y)
      for (blockIdx.x = 0; blockIdx.x < g.x; ++blockIdx.x) emulation::run_block();
  return cudaSuccess;
}

inline const char* cudaGetErrorName(cudaError_t e) {
  switch (e) {
    case cudaErrorInvalidConfiguration:
      return "cudaErrorInvalidConfiguration";
    case cudaErrorInvalidDevice:
      return "cudaErrorInvalidDevice";
    default:
      return "cudaError";
  }
}
inline const char* cudaGetErrorString(cudaError_t e) { return cudaGetErrorName(e); }
inline cudaError_t cudaGetLastError() { return cudaSuccess; }
inline cudaError_t cudaDriverGetVersion(int* v) { return *v = 13000, cudaSuccess; }
inline cudaError_t cudaGetDeviceCount(int* n) { return *n = 1, cudaSuccess; }
inline cudaError_t cudaGetDeviceProperties(cudaDeviceProp* p, int) {
  *p = {"emulated GPU", size_t(1) << 30, 9, 0};
  return cudaSuccess;
}
inline cudaError_t cudaSetDevice(int d) { return d == 0 ? cudaSuccess : cudaErrorInvalidDevice; }
inline cudaError_t cudaDeviceSynchronize() { return cudaSuccess; }
/// Blocks end (to 256 bytes) where a page that nobody may touch begins, and one lies before them.
inline std::map<void*, std::pair<void*, size_t>>& device_blocks() {
  static auto* all = new std::map<void*, std::pair<void*, size_t>>;
  return *all;
}
inline cudaError_t cudaMalloc(void** p, size_t n) {
  constexpr size_t page = 4096;
  if (n > size_t(1) << 30) return cudaErrorMemoryAllocation;
  const size_t used = (n + 255) / 256 * 256, pages = (used + page - 1) / page * page;
  void* all = mmap(nullptr, pages + 2 * page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (all == MAP_FAILED) return cudaErrorMemoryAllocation;
  char* const first = static_cast<char*>(all) + page;
  if (mprotect(first, pages, PROT_READ | PROT_WRITE) != 0) return cudaErrorMemoryAllocation;
  *p = first + pages - used;
  std::memset(*p, 0xff, used);
  device_blocks()[*p] = {all, pages + 2 * page};
  return cudaSuccess;
}
inline cudaError_t cudaFree(void* p) {
  const auto block = device_blocks().find(p);
  if (block == device_blocks().end()) return cudaErrorInvalidValue;
  munmap(block->second.first, block->second.second);
  device_blocks().erase(block);
  return cudaSuccess;
}
inline cudaError_t cudaMemcpy(void* to, const void* from, size_t n, cudaMemcpyKind) {
  return std::memcpy(to, from, n), cudaSuccess;
}
inline cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t n, cudaMemcpyKind k) {
  return cudaMemcpy(to, from, n, k);
}
inline cudaError_t cudaMemcpyPeer(void* to, int, const void* from, int, size_t n) {
  return std::memcpy(to, from, n), cudaSuccess;
}
