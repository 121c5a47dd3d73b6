// The interpreter's counters.
#include <dlfcn.h>

#include <map>
#include <sstream>

#include "faults.h"

namespace {

/// The row of a kernel, by column.
std::map<std::string, long> counters_of(const std::string& kernel) {
  cudaDeviceSynchronize();
  auto* text = reinterpret_cast<const char* (*)()>(dlsym(RTLD_DEFAULT, "ptx_counters"));
  expect(text != nullptr, "ptx_counters is there");
  std::istringstream all(text());
  std::string line, cell;
  std::vector<std::string> names;
  std::map<std::string, long> row;
  while (std::getline(all, line)) {
    std::istringstream cells(line);
    std::vector<std::string> v;
    while (std::getline(cells, cell, '\t')) v.push_back(cell);
    if (names.empty()) names = v;
    if (v[0] == kernel)
      for (size_t i = 1; i < v.size(); ++i) row[names[i]] = std::stol(v[i]);
  }
  return row;
}

__global__ void strided(float* y, const float* x, int step) {
  const int i = int(blockIdx.x * blockDim.x + threadIdx.x);
  y[i] = x[i * step];
}
FINE("sectors and unique bytes") {
  Device<float> x(counting<float>(2048)), y(256);
  strided<<<2, 128>>>(y, x, 1);
  auto row = counters_of("strided");
  expect(row["load_bytes"] == 1024 && row["load_sectors"] == 32, "side by side");
  expect(row["load_unique"] == 1024 && row["store_unique"] == 1024, "once each");
  strided<<<2, 128>>>(y, x, 8);
  row = counters_of("strided");
  expect(row["load_sectors"] == 32 + 256, "a sector for each number");
  strided<<<2, 128>>>(y, x, 0);
  row = counters_of("strided");
  expect(row["load_sectors"] == 32 + 256 + 8, "one sector for a warp");
  expect(row["load_unique"] == 1024 + 1024 + 4, "one number for all");
  expect(row["launches"] == 3 && row["blocks"] == 6 && row["local"] == 0, "the rest");
}

/// Reads `count` elements of x, `times` times.
__global__ void again(float* y, const float* x, int count, int times) {
  float sum = 0;
  for (int t = 0; t < times; ++t)
    for (int i = int(threadIdx.x); i < count; i += int(blockDim.x)) sum += x[i];
  y[blockIdx.x * blockDim.x + threadIdx.x] = sum;
}
FINE("what the first cache holds is not fetched again") {
  constexpr int small = 4096, large = 1 << 17;  // 16 KiB; 512 KiB, twice the cache
  Device<float> x(counting<float>(large)), y(133 * 128);
  auto* reset = reinterpret_cast<void (*)()>(dlsym(RTLD_DEFAULT, "ptx_reset_counters"));
  reset();
  again<<<1, 128>>>(y, x, small, 3);
  auto row = counters_of("again");
  expect(row["load_sectors"] == 3 * small / 8 && row["load_missed"] == small / 8, "a block's");
  reset();
  again<<<133, 128>>>(y, x, small, 1);
  row = counters_of("again");
  expect(row["load_missed"] == 132 * small / 8, "a multiprocessor's");
  expect(row["threads"] == 128 && row["store_requests"] == 133 * 4, "of the launch");
  reset();
  again<<<1, 32>>>(y, x, large, 2);
  row = counters_of("again");
  expect(row["load_missed"] > row["load_sectors"] * 9 / 10, "more than it holds");
}

__global__ void banks(float* y, int step) {
  __shared__ float s[1024];
  for (int i = 0; i < 32; ++i) s[i * 32 + threadIdx.x] = 1;
  __syncwarp();
  y[threadIdx.x] = s[threadIdx.x * step];
}
FINE("bank conflicts") {
  Device<float> y(32);
  long before = 0;
  for (const auto& [step, waves] : std::map<int, long>{{0, 1}, {1, 1}, {2, 2}, {31, 1}, {8, 8}}) {
    banks<<<1, 32>>>(y, step);
    auto row = counters_of("banks");
    expect(row["wavefronts"] - before == 32 + waves, "wavefronts");
    before = row["wavefronts"];
  }
  expect(counters_of("banks")["wavefronts_ideal"] == 5 * 33, "without conflicts");
}
__global__ void diverging(int* y) {
  if (y[threadIdx.x] < 8) {
    y[threadIdx.x] = __shfl_sync(0xffu, 1, 0);
  } else {
    for (int i = 0; i < y[threadIdx.x]; ++i) atomicAdd(y + 32, 1);
  }
}
FINE("diverging branches and atomics") {
  std::vector<int> v(33, 8);
  for (int i = 0; i < 8; ++i) v[i] = 0;
  Device<int> y(v);
  diverging<<<1, 32>>>(y);
  auto row = counters_of("diverging");
  expect(row["diverged"] >= 1 && row["atomics"] == 8 && row["warp_syncs"] == 1, "the counts");
  expect(y.values()[32] == 8 + 8 * 24, "the sum");
}

}  // namespace
