// Blocks of memory that occupy only what is written, and launches limited to their last blocks.
#include "faults.h"

namespace {

__global__ void each_block(int* y) { y[blockIdx.x] = 1; }
FINE("only the last blocks run") {
  Device<int> y(std::vector<int>(8, 0));
  setenv("PTX_LAST_BLOCKS", "2", 1);
  each_block<<<8, 1>>>(y);
  expect(y.values() == std::vector<int>{0, 0, 0, 0, 0, 0, 1, 1}, "the stores");
}
__global__ void at_offset(int* y, long long at) { y[at] = 3; }
FINE("a block of 6 GiB occupies no memory") {
  setenv("PTX_MEMORY", "6", 1);
  Device<char> all(size_t(6) << 30);
  const long long last = (6ll << 28) - 1;
  at_offset<<<1, 1>>>(reinterpret_cast<int*>(all.p), last);
  int got = 0;
  cudaMemcpy(&got, all + 4 * last, 4, cudaMemcpyDeviceToHost);
  expect(got == 3, "the store");
}
FAULT("an element of such a block that was never written", "unwritten: cudaMemcpy") {
  setenv("PTX_MEMORY", "6", 1);
  Device<char> all(size_t(6) << 30);
  char got = 0;
  cudaMemcpy(&got, all + (5ll << 30), 1, cudaMemcpyDeviceToHost);
}
FAULT("such a block is used after it is freed", "out of bounds: a store") {
  setenv("PTX_MEMORY", "6", 1);
  char* all = nullptr;
  cudaMalloc(reinterpret_cast<void**>(&all), size_t(6) << 30);
  cudaFree(all);
  at_offset<<<1, 1>>>(reinterpret_cast<int*>(all), 5ll << 28);
}

}  // namespace
