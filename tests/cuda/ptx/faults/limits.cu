// Limits of the device and its driver, errors, and children of a process.
#include <sys/wait.h>
#include <unistd.h>

#include "faults.h"

namespace {

__global__ void mark(int* y) {
  if (threadIdx.x == 0 && blockIdx.x == 0 && blockIdx.y == 0 && blockIdx.z == 0) *y = 1;
}
__global__ void uses_shared(int* y) {
  extern __shared__ int s[];
  s[threadIdx.x] = 1;
  y[threadIdx.x] = s[threadIdx.x];
}
FINE("1024 threads") {
  Device<int> y(1);
  mark<<<1, 1024>>>(y);
  expect(y.values()[0] == 1, "the mark");
}
FAULT("1025 threads", "limits: a block") {
  Device<int> y(1);
  mark<<<1, 1025>>>(y);
}
FAULT("65 threads in z", "limits: a block") {
  Device<int> y(1);
  mark<<<1, dim3(1, 1, 65)>>>(y);
}
FAULT("65536 blocks in y", "limits: a grid") {
  Device<int> y(1);
  mark<<<dim3(1, 65536), 1>>>(y);
}
FINE("65535 blocks in y") {
  Device<int> y(1);
  mark<<<dim3(1, 65535), 1>>>(y);
}
FAULT("an empty grid", "limits: an empty grid") {
  Device<int> y(1);
  mark<<<0, 32>>>(y);
}
__global__ void __launch_bounds__(64) bounded(int* y) {
  if (threadIdx.x == 0) *y = int(blockDim.x);
}
FINE("as many threads as __launch_bounds__ allows") {
  Device<int> y(1);
  bounded<<<1, 64>>>(y);
  expect(y.values()[0] == 64, "the store");
}
FAULT("more threads than __launch_bounds__ allows", "limits: a block") {
  Device<int> y(1);
  bounded<<<1, 96>>>(y);
}
FAULT("49 KiB of dynamic shared memory", "limits: 50176 bytes") {
  Device<int> y(32);
  uses_shared<<<1, 32, 49 << 10>>>(y);
}
__global__ void many_registers(float* y, const float* x, int n) {
  float v[100];
#pragma unroll
  for (int i = 0; i < 100; ++i) v[i] = x[i];
  for (int r = 0; r < n; ++r) {
#pragma unroll
    for (int i = 0; i < 100; ++i) v[i] = v[i] * v[(i + 1) % 100] + v[(i + 7) % 100];
  }
#pragma unroll
  for (int i = 0; i < 100; ++i) y[i * blockDim.x + threadIdx.x] = v[i];
}
FAULT("more registers than a multiprocessor has", "limits: ") {
  Device<float> x(counting<float>(100)), y(102400);
  many_registers<<<1, 1024>>>(y, x, 2);
}
FINE("many registers of few threads") {
  Device<float> x(std::vector<float>(100, 0.5f)), y(12800);
  many_registers<<<1, 128>>>(y, x, 2);
}
FINE("49 KiB of dynamic shared memory, asked for") {
  Device<int> y(32);
  cudaFuncSetAttribute(uses_shared, cudaFuncAttributeMaxDynamicSharedMemorySize, 64 << 10);
  uses_shared<<<1, 32, 49 << 10>>>(y);
  expect(y.values()[31] == 1, "the store");
}
FAULT("more dynamic shared memory than was asked for", "limits: 65540 bytes") {
  Device<int> y(32);
  cudaFuncSetAttribute(uses_shared, cudaFuncAttributeMaxDynamicSharedMemorySize, 64 << 10);
  uses_shared<<<1, 32, (64 << 10) + 4>>>(y);
}
FINE("attributes belong to kernels") {
  expect(cudaFuncSetAttribute("no kernel", cudaFuncAttributeMaxDynamicSharedMemorySize, 64) ==
             cudaErrorInvalidDeviceFunction,
         "the error");
  cudaFuncAttributes attributes;
  cudaFuncGetAttributes(&attributes, bounded);
  expect(attributes.maxThreadsPerBlock == 64, "its threads");
}
FINE("228 KiB cannot be asked for") {
  expect(cudaFuncSetAttribute(uses_shared, cudaFuncAttributeMaxDynamicSharedMemorySize,
                              228 << 10) == cudaErrorInvalidValue,
         "the error");
}
FINE("an error of a call is given once") {
  expect(cudaSetDevice(1) == cudaErrorInvalidDevice, "the error");
  expect(cudaGetLastError() == cudaErrorInvalidDevice && cudaGetLastError() == cudaSuccess, "once");
}
__global__ void astray(int* y) { y[threadIdx.x] = 1; }
FAULT("an error of a kernel stays", "out of bounds: a store") {
  Device<int> y(31);
  astray<<<1, 32>>>(y);
  cudaGetLastError();
  expect(cudaDeviceSynchronize() == cudaErrorIllegalAddress, "the error");
  void* p = nullptr;
  expect(cudaMalloc(&p, 4) == cudaErrorIllegalAddress, "the error again");
}

FINE("a child of a process that uses the device cannot use it") {
  Device<int> y(1);
  const pid_t child = fork();
  if (child == 0) {
    void* p = nullptr;
    const bool refused = cudaMalloc(&p, 4) == cudaErrorInitializationError &&
                         cudaMemset(y, 0, 4) == cudaErrorInitializationError &&
                         cudaDeviceSynchronize() == cudaErrorInitializationError;
    _exit(refused ? 0 : 1);
  }
  int status = 1;
  waitpid(child, &status, 0);
  expect(status == 0, "the errors");
  expect(cudaDeviceSynchronize() == cudaSuccess, "its parent");
}
FINE("drivers that are too old") {
  int count = 1;
  setenv("PTX_DRIVER", "12040", 1);
  expect(cudaGetDeviceCount(&count) == cudaErrorInsufficientDriver && count == 0, "the count");
}

}  // namespace
