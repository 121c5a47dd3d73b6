// libcudart: the calls of the CUDA runtime that the project makes.
#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <stdexcept>

#include "modules.h"
#include "streams.h"

namespace interpreter {
namespace {

struct Limits {
  static constexpr u64 threads = 1024, block_z = 64, grid_x = 0x7fffffff, grid_yz = 65535;
  static constexpr u64 registers = 65536, shared = 48 << 10;
  /// 227 KB, or PTX_SHARED KB if that is set.
  static u64 shared_opt_in() {
    const char* const kb = std::getenv("PTX_SHARED");
    return (kb ? std::strtoull(kb, nullptr, 10) : 227) << 10;
  }
};

thread_local Dim3 pushed_grid, pushed_block;
thread_local size_t pushed_shared;
thread_local void* pushed_stream;

std::map<const void*, u64>& opted_in() {  // kernels with more than 48 KiB of dynamic shared memory
  static auto* all = new std::map<const void*, u64>;
  return *all;
}

std::string sizes(Dim3 d) {
  return std::to_string(d.x) + " x " + std::to_string(d.y) + " x " + std::to_string(d.z);
}

/// Why the device would reject a launch; empty if it would not.
std::string refused(const Kernel& k, const void* function, Dim3 grid, Dim3 block, u64 shared) {
  if (grid.count() == 0) return "an empty grid, " + sizes(grid);
  if (block.count() == 0) return "an empty block, " + sizes(block);
  if (grid.x > Limits::grid_x || grid.y > Limits::grid_yz || grid.z > Limits::grid_yz)
    return "a grid of " + sizes(grid) + "; y and z go to 65535";
  if (block.count() > Limits::threads || block.z > Limits::block_z)
    return "a block of " + sizes(block) + "; there are 1024 threads in all, 64 in z";
  if (block.count() > k.max_threads)
    return "a block of " + sizes(block) + "; __launch_bounds__ allows " +
           std::to_string(k.max_threads) + " threads";
  const auto it = opted_in().find(function);
  const u64 most = it == opted_in().end() ? Limits::shared : std::max(it->second, Limits::shared);
  const u64 fixed = k.dynamic_shared > k.shared_bytes ? k.dynamic_shared : k.shared_bytes;
  if (fixed > Limits::shared) return std::to_string(fixed) + " bytes of static shared memory";
  const u64 warps = (block.count() + 31) / 32, registers = (k.counters->registers + 7) / 8 * 8;
  if (warps * 32 * registers > Limits::registers)
    return std::to_string(registers) + " registers of each of " + std::to_string(block.count()) +
           " threads";
  if (fixed + shared > std::max(most, fixed) || fixed + shared > Limits::shared_opt_in())
    return std::to_string(fixed + shared) + " bytes of shared memory, of " + std::to_string(most);
  return {};
}

/// The kernel, or null after a verdict or if there is none.
Kernel* known_kernel(const void* function) {
  try {
    return kernel_of(function);
  } catch (const std::exception& e) {
    verdict(std::string("unknown: ") + e.what());
    lose(launch_failure);
    return nullptr;
  }
}

int launch(const void* function, Dim3 grid, Dim3 block, void** args, u64 shared, void* stream) {
  if (lost()) return lost();
  std::lock_guard lock(runtime_mutex());
  Kernel* const k = known_kernel(function);
  if (!k) return set_error(invalid_function);
  if (const std::string why = refused(*k, function, grid, block, shared); !why.empty()) {
    verdict("limits: " + why + "; kernel " + k->name);
    return set_error(invalid_configuration);
  }
  std::vector<u8> params(k->param_bytes + 64);  // padded: loads of inactive lanes stay inside
  for (size_t i = 0; i < k->params.size(); ++i)
    std::memcpy(&params[k->params[i].offset], args[i], k->params[i].size);
  const char* const text = std::getenv("PTX_LAST_BLOCKS");  // as of now: the work may run later
  const u64 last = text ? std::strtoull(text, nullptr, 10) : ~u64(0);
  return submit(stream, "launch", [k, grid, block, shared, last, params = std::move(params)] {
    run({*k, grid, block, shared, params.data(), last});
  });
}

void transfer(void* to, const void* from, u64 n) {
  auto& device = DeviceMemory::get();
  const bool up = !on_device(from), down = !on_device(to);
  if (!up) check_device_read("cudaMemcpy", from, n, down);
  if (!down) check_device_write("cudaMemcpy", to, n);
  const u8* source = up ? static_cast<const u8*>(from) : device.bytes(u64(from));
  u8* target = down ? static_cast<u8*>(to) : device.bytes(u64(to));
  std::memmove(target, source, n);
  if (up && !down) ++traffic().uploads, traffic().upload_bytes += n;
  if (down && !up) ++traffic().downloads, traffic().download_bytes += n;
  if (down) return;
  if (up) {
    device.mark(u64(to), n, written);
  } else {
    std::memmove(device.state + (u64(to) - device.base), device.state + (u64(from) - device.base),
                 n);
  }
}

/// Copies from pageable memory read the source at once, copies to it wait; pinned memory is
/// accessed when the copy runs.
int copy(void* to, const void* from, u64 n, int kind, void* handle, bool waits) {
  std::lock_guard lock(runtime_mutex());
  if (n == 0 || lost()) return lost();
  Stream& stream = stream_of(handle);
  const bool up = !on_device(from), down = !on_device(to);
  if (kind != cudaMemcpyDefault && kind != 2 * int(!up) + int(!down)) {
    verdict("copies: cudaMemcpyKind " + std::to_string(kind) + " from " + hex(u64(from)) + " to " +
            hex(u64(to)) + "; device memory begins at " + hex(DeviceMemory::get().base));
    return set_error(invalid_copy_direction);
  }
  if (up == down && u64(to) < u64(from) + n && u64(from) < u64(to) + n) {
    verdict("copies: " + std::to_string(n) + " bytes from " + hex(u64(from)) + " to " +
            hex(u64(to)) + " overlap");
    return set_error(invalid_value);
  }
  if (waits && (up || down))
    if (const int e = refuse_in_capture("cudaMemcpy")) return e;
  Work work{"cudaMemcpy", [=] { transfer(to, from, n); }, {}};
  const void* host = up ? from : down ? to : nullptr;
  const bool pinned = host && is_pinned(host, n);
  if (pinned) {
    work.pinned = host;
    work.pinned_bytes = n;
    work.writes_host = down;
  } else if (up && !stream.capture) {
    const u8* bytes = static_cast<const u8*>(from);
    work.run = [=, copy = std::vector<u8>(bytes, bytes + n)] { transfer(to, copy.data(), n); };
  } else if (down && stream.capture) {
    return refuse_in_capture("a copy to pageable memory");
  }
  const int error = submit(stream, std::move(work));
  const bool must_wait = (waits && (up || down)) || (down && !pinned);
  return error || !must_wait ? error : synchronize(stream, stream.submitted);
}

}  // namespace

void check_device_write(const char* what, const void* to, u64 bytes) {
  auto& device = DeviceMemory::get();
  const u64 good = device.allocated(u64(to), bytes);
  if (good == bytes) return order_access(device.block(u64(to)).first, true, what);
  verdict("out of bounds: " + std::string(what) + " writes " + std::to_string(bytes) +
          " bytes from " + device.place(u64(to)) + ", of which " + std::to_string(good) +
          " are there");
  throw Fault{illegal_address};
}
void check_device_read(const char* what, const void* from, u64 bytes, bool uses_values) {
  auto& device = DeviceMemory::get();
  const u64 good = device.allocated(u64(from), bytes);
  if (good == bytes) {
    order_access(device.block(u64(from)).first, false, what);
    const u8* state = device.state + (u64(from) - device.base);
    const u64 set = uses_values ? u64(std::find(state, state + bytes, unwritten) - state) : bytes;
    if (set == bytes) return;
    verdict("unwritten: " + std::string(what) + " reads what nothing wrote, " +
            device.place(u64(from) + set));
    throw Fault{launch_failure};
  }
  verdict("out of bounds: " + std::string(what) + " reads " + std::to_string(bytes) +
          " bytes from " + device.place(u64(from)) + ", of which " + std::to_string(good) +
          " are there");
  throw Fault{illegal_address};
}

}  // namespace interpreter

using namespace interpreter;

namespace {
cudaError_t result(int e) { return cudaError_t(set_error(e)); }
cudaError_t now() { return cudaError_t(lost()); }
Dim3 dims(dim3 d) { return {d.x, d.y, d.z}; }
}  // namespace

extern "C" {

// ---- launches

// NOLINTBEGIN(bugprone-reserved-identifier): names that nvcc calls
unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t shared, void* stream) {
  pushed_grid = dims(grid), pushed_block = dims(block);
  pushed_shared = shared, pushed_stream = stream;
  return 0;
}
cudaError_t __cudaPopCallConfiguration(dim3* grid, dim3* block, size_t* shared, void* stream) {
  *grid = {pushed_grid.x, pushed_grid.y, pushed_grid.z};
  *block = {pushed_block.x, pushed_block.y, pushed_block.z};
  *shared = pushed_shared;
  *static_cast<void**>(stream) = pushed_stream;
  return cudaSuccess;
}
cudaError_t __cudaGetKernel(cudaKernel_t* kernel, const void* function) {
  *kernel = reinterpret_cast<cudaKernel_t>(const_cast<void*>(function));
  return cudaSuccess;
}
cudaError_t __cudaLaunchKernel(cudaKernel_t kernel, dim3 grid, dim3 block, void** args,
                               size_t shared, cudaStream_t stream) {
  return result(launch(kernel, dims(grid), dims(block), args, shared, stream));
}
// NOLINTEND(bugprone-reserved-identifier)
cudaError_t cudaLaunchKernel(const void* function, dim3 grid, dim3 block, void** args,
                             size_t shared, cudaStream_t stream) {
  return result(launch(function, dims(grid), dims(block), args, shared, stream));
}
cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t* c, const void* function, void** args) {
  if (c->numAttrs > 0) {
    verdict("unknown: attributes of a launch");
    return result(invalid_value);
  }
  return result(
      launch(function, dims(c->gridDim), dims(c->blockDim), args, c->dynamicSmemBytes, c->stream));
}
cudaError_t cudaFuncSetAttribute(const void* function, cudaFuncAttribute attribute, int value) {
  if (lost()) return now();
  const Kernel* const k = known_kernel(function);
  if (!k) return result(invalid_function);
  if (attribute != cudaFuncAttributeMaxDynamicSharedMemorySize) {
    verdict("unknown: cudaFuncSetAttribute " + std::to_string(int(attribute)));
    return result(invalid_value);
  }
  if (value < 0 || k->shared_bytes + u64(value) > Limits::shared_opt_in())
    return result(invalid_value);
  opted_in()[function] = u64(value);
  return cudaSuccess;
}
cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* a, const void* function) {
  if (lost()) return now();
  const Kernel* const k = known_kernel(function);
  if (!k) return result(invalid_function);
  *a = {};
  a->sharedSizeBytes = k->shared_bytes;
  a->localSizeBytes = k->local_bytes;
  a->numRegs = int(k->counters->registers);
  a->maxThreadsPerBlock = int(k->max_threads);
  a->ptxVersion = a->binaryVersion = 90;
  return cudaSuccess;
}
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int* n, const void*, int threads,
                                                                   size_t shared, unsigned) {
  *n = std::max(1, std::min({2048 / std::max(threads, 1), 32,
                             shared ? int((228u << 10) / (shared + 1024)) : 32}));
  return cudaSuccess;
}
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* n, const void* f, int threads,
                                                          size_t shared) {
  return cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(n, f, threads, shared, 0);
}

// ---- memory

cudaError_t cudaMalloc(void** p, size_t n) {
  if (lost()) return now();
  std::lock_guard lock(runtime_mutex());
  if (const int e = refuse_in_capture("cudaMalloc", true)) return cudaError_t(e);
  *p = nullptr;
  if (n == 0) return cudaSuccess;
  lose_in_children();
  *p = reinterpret_cast<void*>(DeviceMemory::get().allocate(n));
  return *p ? cudaSuccess : result(out_of_memory);
}
cudaError_t cudaFree(void* p) {
  if (lost()) return now();
  std::lock_guard lock(runtime_mutex());
  if (const int e = refuse_in_capture("cudaFree")) return cudaError_t(e);
  synchronize_all();
  forget_accesses(u64(p));
  if (p && !DeviceMemory::get().release(u64(p))) return result(invalid_value);
  return cudaSuccess;
}
cudaError_t cudaMemcpy(void* to, const void* from, size_t n, cudaMemcpyKind kind) {
  return result(copy(to, from, n, kind, nullptr, true));
}
cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t n, cudaMemcpyKind kind,
                            cudaStream_t s) {
  return result(copy(to, from, n, kind, s, false));
}
cudaError_t cudaMemcpyPeer(void* to, int target, const void* from, int source, size_t n) {
  if (target != 0 || source != 0) return result(invalid_device);
  return result(copy(to, from, n, cudaMemcpyDeviceToDevice, nullptr, true));
}
cudaError_t cudaMemcpyPeerAsync(void* to, int target, const void* from, int source, size_t n,
                                cudaStream_t s) {
  if (target != 0 || source != 0) return result(invalid_device);
  return result(copy(to, from, n, cudaMemcpyDeviceToDevice, s, false));
}
cudaError_t cudaMemsetAsync(void* to, int value, size_t n, cudaStream_t stream) {
  return result(submit(stream, "cudaMemset", [=] {
    check_device_write("cudaMemset", to, n);
    std::memset(DeviceMemory::get().bytes(u64(to)), value, n);
    DeviceMemory::get().mark(u64(to), n, written);
  }));
}
cudaError_t cudaMemset(void* to, int value, size_t n) {
  return cudaMemsetAsync(to, value, n, nullptr);
}
cudaError_t cudaMemGetInfo(size_t* left, size_t* all) {
  *all = DeviceMemory::limit();
  *left = *all - DeviceMemory::get().live;
  return cudaSuccess;
}

// ---- devices and errors

cudaError_t cudaDriverGetVersion(int* v) { return *v = driver_version(), cudaSuccess; }
cudaError_t cudaGetDeviceCount(int* n) { return *n = lost() ? 0 : 1, now(); }
cudaError_t cudaSetDevice(int d) { return result(d == 0 ? lost() : int(invalid_device)); }
cudaError_t cudaGetDevice(int* d) { return *d = 0, cudaSuccess; }
cudaError_t cudaRuntimeGetVersion(int* v) { return *v = CUDART_VERSION, cudaSuccess; }
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* p, int d) {
  if (d != 0) return result(invalid_device);
  *p = {};
  std::snprintf(p->name, sizeof p->name, "PTX interpreter");
  p->totalGlobalMem = DeviceMemory::limit();
  p->major = 9;
  p->multiProcessorCount = 4;
  p->warpSize = 32;
  p->maxThreadsPerBlock = int(Limits::threads);
  p->sharedMemPerBlock = Limits::shared;
  p->sharedMemPerBlockOptin = Limits::shared_opt_in();
  p->sharedMemPerMultiprocessor = 228 << 10;
  p->regsPerBlock = p->regsPerMultiprocessor = 65536;
  p->maxThreadsPerMultiProcessor = 2048;
  p->l2CacheSize = 50 << 20;
  return cudaSuccess;
}
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int d) {
  if (d != 0) return result(invalid_device);
  switch (attribute) {
    case cudaDevAttrMultiProcessorCount:
      return *value = 4, cudaSuccess;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin:
      return *value = int(Limits::shared_opt_in()), cudaSuccess;
    case cudaDevAttrMaxThreadsPerBlock:
      return *value = int(Limits::threads), cudaSuccess;
    case cudaDevAttrComputeCapabilityMajor:
      return *value = 9, cudaSuccess;
    case cudaDevAttrComputeCapabilityMinor:
      return *value = 0, cudaSuccess;
    case cudaDevAttrL2CacheSize:
      return *value = 50 << 20, cudaSuccess;
    default:
      verdict("unknown: cudaDeviceGetAttribute " + std::to_string(int(attribute)));
      return result(invalid_value);
  }
}
cudaError_t cudaDeviceSynchronize() {
  ++traffic().synchronizations;
  if (const int e = refuse_in_capture("cudaDeviceSynchronize")) return cudaError_t(e);
  return cudaError_t(synchronize_all());
}
cudaError_t cudaGetLastError() { return cudaError_t(last_error(true)); }
cudaError_t cudaPeekAtLastError() { return cudaError_t(last_error(false)); }

const char* cudaGetErrorName(cudaError_t e) {
  switch (e) {
    case cudaSuccess:
      return "cudaSuccess";
    case cudaErrorInvalidValue:
      return "cudaErrorInvalidValue";
    case cudaErrorMemoryAllocation:
      return "cudaErrorMemoryAllocation";
    case cudaErrorInitializationError:
      return "cudaErrorInitializationError";
    case cudaErrorInvalidConfiguration:
      return "cudaErrorInvalidConfiguration";
    case cudaErrorInvalidDevice:
      return "cudaErrorInvalidDevice";
    case cudaErrorInvalidDeviceFunction:
      return "cudaErrorInvalidDeviceFunction";
    case cudaErrorIllegalAddress:
      return "cudaErrorIllegalAddress";
    case cudaErrorMisalignedAddress:
      return "cudaErrorMisalignedAddress";
    case cudaErrorLaunchFailure:
      return "cudaErrorLaunchFailure";
    case cudaErrorStreamCaptureUnsupported:
      return "cudaErrorStreamCaptureUnsupported";
    case cudaErrorStreamCaptureInvalidated:
      return "cudaErrorStreamCaptureInvalidated";
    case cudaErrorStreamCaptureImplicit:
      return "cudaErrorStreamCaptureImplicit";
    default:
      return "cudaErrorUnknown";
  }
}
const char* cudaGetErrorString(cudaError_t e) {
  switch (e) {
    case cudaSuccess:
      return "no error";
    case cudaErrorInvalidValue:
      return "invalid argument";
    case cudaErrorMemoryAllocation:
      return "out of memory";
    case cudaErrorInitializationError:
      return "initialization error";
    case cudaErrorInvalidConfiguration:
      return "invalid configuration argument";
    case cudaErrorInvalidDevice:
      return "invalid device ordinal";
    case cudaErrorInvalidDeviceFunction:
      return "invalid device function";
    case cudaErrorIllegalAddress:
      return "an illegal memory access was encountered";
    case cudaErrorMisalignedAddress:
      return "misaligned address";
    case cudaErrorLaunchFailure:
      return "unspecified launch failure";
    case cudaErrorStreamCaptureUnsupported:
      return "operation not permitted when stream is capturing";
    case cudaErrorStreamCaptureInvalidated:
      return "operation failed due to a previous error during capture";
    case cudaErrorStreamCaptureImplicit:
      return "operation would make the legacy stream depend on a capturing blocking stream";
    default:
      return "unknown error";
  }
}

}  // extern "C"
