// Global and local memory: bounds, alignment, unwritten memory, accesses of several blocks.
#include "faults.h"

namespace {

__global__ void copy(float* to, const float* from, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) to[i] = from[i];
}
FINE("copy of 100 numbers") {
  Device<float> x(counting<float>(100)), y(100);
  copy<<<2, 64>>>(y, x, 100);
  expect(y.values() == counting<float>(100), "the copy");
}
__global__ void first_of(float* to, const float* from, bool one) {
  if (!one || threadIdx.x == 0) *to = from[0];
}
FINE("one thread stores a result") {
  Device<float> x(counting<float>(1)), y(1);
  first_of<<<1, 32>>>(y, x, true);
}
FAULT("all threads store a result", "race: several threads store to one place") {
  Device<float> x(counting<float>(1)), y(1);
  first_of<<<1, 32>>>(y, x, false);
}
FAULT("reads one past the end", "out of bounds: a load") {
  Device<float> x(counting<float>(99)), y(100);
  copy<<<2, 64>>>(y, x, 100);
}
FAULT("writes one past the end", "out of bounds: a store") {
  Device<float> x(counting<float>(100)), y(99);
  copy<<<2, 64>>>(y, x, 100);
}
FAULT("reads before the beginning", "out of bounds: a load") {
  Device<float> x(counting<float>(100)), y(100);
  copy<<<1, 64>>>(y, x.p - 1, 64);
}
FAULT("reads an address of the host", "out of bounds: a load") {
  std::vector<float> x(100);
  Device<float> y(100);
  copy<<<1, 64>>>(y, x.data(), 64);
}
FAULT("reads what was freed", "out of bounds: a load") {
  Device<float> y(64);
  float* gone = nullptr;
  {
    Device<float> x(counting<float>(64));
    gone = x.p;
  }
  copy<<<1, 64>>>(y, gone, 64);
}
FAULT("reads what nothing wrote", "unwritten: a load of memory") {
  Device<float> x(64), y(64);
  copy<<<1, 64>>>(y, x, 64);
}
FAULT("reads a result of which one number is missing", "unwritten: a load of memory") {
  Device<float> x(counting<float>(64)), y(64), z(64);
  copy<<<1, 64>>>(y, x, 63);
  copy<<<1, 64>>>(z, y, 64);
}
FAULT("a copy on the device spreads what nothing wrote", "unwritten: a load of memory") {
  Device<float> x(64), y(64), z(64);
  cudaMemcpy(y, x, 256, cudaMemcpyDeviceToDevice);
  copy<<<1, 64>>>(z, y, 64);
}
FAULT("copies to the host what nothing wrote", "unwritten: cudaMemcpy reads") {
  Device<float> x(counting<float>(63)), y(64);
  copy<<<1, 64>>>(y, x, 63);
  y.values();
}
FAULT("copies more to the device than there is room", "out of bounds: cudaMemcpy writes") {
  Device<float> x(10);
  const std::vector<float> values(11);
  cudaMemcpy(x, values.data(), 44, cudaMemcpyHostToDevice);
}
FAULT("copies more from the device than there is", "out of bounds: cudaMemcpy reads") {
  Device<float> x(counting<float>(10));
  std::vector<float> values(11);
  cudaMemcpy(values.data(), x, 44, cudaMemcpyDeviceToHost);
}

__global__ void copy4(float4* to, const float4* from) { to[threadIdx.x] = from[threadIdx.x]; }
FINE("copy by packs of 16 bytes") {
  Device<float> x(counting<float>(128)), y(128);
  copy4<<<1, 32>>>(reinterpret_cast<float4*>(y.p), reinterpret_cast<float4*>(x.p));
  expect(y.values() == counting<float>(128), "the copy");
}
FAULT("a pack at an odd address", "misaligned: a load of 16 bytes") {
  Device<float> x(counting<float>(129)), y(128);
  copy4<<<1, 32>>>(reinterpret_cast<float4*>(y.p), reinterpret_cast<float4*>(x.p + 1));
}
FAULT("a pack that reaches over the end", "out of bounds: a load of 16 bytes") {
  Device<float> x(counting<float>(127)), y(128);
  copy4<<<1, 32>>>(reinterpret_cast<float4*>(y.p), reinterpret_cast<float4*>(x.p));
}

__global__ void sum_into(float* to, const float* from, int stride) {
  to[blockIdx.x * stride] = from[blockIdx.x];
}
FINE("a number for each block") {
  Device<float> x(counting<float>(8)), y(8);
  sum_into<<<8, 1>>>(y, x, 1);
}
FAULT("two blocks write one number", "two blocks: a store") {
  Device<float> x(counting<float>(8)), y(8);
  sum_into<<<8, 1>>>(y, x, 0);
}
__global__ void next_block(float* x) { x[blockIdx.x] = x[(blockIdx.x + 1) % gridDim.x] + 1; }
FAULT("a block reads what another writes", "two blocks: a ") {
  Device<float> x(counting<float>(8));
  next_block<<<8, 1>>>(x);
}
__global__ void bytes_of_blocks(unsigned char* x) { x[blockIdx.x] = 1; }
FINE("neighboring bytes of different blocks") {
  Device<unsigned char> x(8);
  bytes_of_blocks<<<8, 1>>>(x);
  expect(x.values() == std::vector<unsigned char>(8, 1), "bytes");
}
FINE("the same number, read by all blocks and written in the next launch") {
  Device<float> x(counting<float>(8)), y(8);
  sum_into<<<8, 1>>>(y, x, 1);
  sum_into<<<8, 1>>>(x, y, 1);
}

__global__ void add_float(float* x) { atomicAdd(x, 1.0f); }
FAULT("an atomic on a float", "unknown: float atomics") {
  Device<float> x(counting<float>(1));
  add_float<<<1, 32>>>(x);
}
__global__ void add_int(int* x) {
  atomicAdd(x, 1);
  atomicMax(x + 1, int(threadIdx.x));
}
FINE("atomics on integers") {
  Device<int> x(std::vector<int>{5, 0});
  add_int<<<4, 32>>>(x);
  expect(x.values() == std::vector<int>{133, 31}, "the counts");
}

__global__ void local(float* y, int n, int k) {
  float a[16];
  for (int i = 0; i < n; ++i) a[(i * 7) % 16] = float(i);
  y[threadIdx.x] = a[(k + threadIdx.x) % 16];
}
FINE("an array of a thread") {
  Device<float> y(32);
  local<<<1, 32>>>(y, 16, 3);
  expect(y.values()[4] == 1.0f, "7 * 1 % 16 is 7");
}
FAULT("an array of a thread, not all written", "unwritten: a load of local memory") {
  Device<float> y(32);
  local<<<1, 32>>>(y, 9, 3);
}
__global__ void local_index(float* y, int k) {
  float a[16];
  for (int i = 0; i < 16; ++i) a[(i * k) & 15] = float(i);
  y[threadIdx.x] = a[k + threadIdx.x];
}
FAULT("an array of a thread, beyond its end", "out of bounds: a load of 4 bytes of local memory") {
  Device<float> y(32);
  local_index<<<1, 32>>>(y, 1);
}

__global__ void unset_store(unsigned* y) {
  asm volatile("{\n .reg .b32 never;\n st.global.u32 [%0], never;\n}" ::"l"(y) : "memory");
}
FAULT("stores a register that was never set", "unset: a store") {
  Device<unsigned> y(1);
  unset_store<<<1, 1>>>(y);
}
__global__ void unset_sum(unsigned* y) {
  asm volatile(
      "{\n .reg .b32 never, sum;\n add.u32 sum, never, 1;\n st.global.u32 [%0], sum;\n}" ::"l"(y)
      : "memory");
}
FAULT("stores a sum of a register that was never set", "unset: a store") {
  Device<unsigned> y(1);
  unset_sum<<<1, 1>>>(y);
}
__global__ void unset_address(unsigned* y) {
  asm volatile("{\n .reg .b64 never;\n st.global.u32 [never], 1;\n}" ::"l"(y) : "memory");
}
FAULT("an address that was never set", "unset: an address") {
  Device<unsigned> y(1);
  unset_address<<<1, 1>>>(y);
}
__global__ void trapping(const int* x) {
  if (x[threadIdx.x] == 3) __trap();
}
FAULT("a kernel that gives up", "trap") {
  Device<int> x(counting<int>(32));
  trapping<<<1, 32>>>(x);
}
__global__ void unknown(unsigned* y) {
  unsigned sum;
  asm volatile("dp4a.u32.u32 %0, %1, %1, %1;" : "=r"(sum) : "r"(threadIdx.x));
  y[threadIdx.x] = sum;
}
FAULT("what the interpreter does not know",
      "unknown: an instruction that the interpreter does not know: dp4a") {
  Device<unsigned> y(1);
  unknown<<<1, 1>>>(y);
}

}  // namespace
