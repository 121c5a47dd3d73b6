// Shared memory and barriers.
#include "faults.h"

namespace {

__global__ void reversed(int* y, const int* x, bool before, bool after, int rounds) {
  __shared__ int s[256];
  const int t = int(threadIdx.x);
  for (int r = 0; r < rounds; ++r) {
    if (before) __syncthreads();
    s[t] = x[t] + r;
    if (after) __syncthreads();
    y[t] = s[255 - t];
  }
}
FINE("reversed through shared memory") {
  Device<int> x(counting<int>(256)), y(256);
  reversed<<<1, 256>>>(y, x, true, true, 3);
  expect(y.values()[0] == 257, "the last");
}
FAULT("no barrier after the write", "unwritten: a load of shared memory") {
  Device<int> x(counting<int>(256)), y(256);
  reversed<<<1, 256>>>(y, x, true, false, 1);
}
FAULT("no barrier after the write, in a second round", "race: a ") {
  Device<int> x(counting<int>(256)), y(256);
  reversed<<<1, 256>>>(y, x, false, true, 2);
}
__global__ void two_arrays(int* y) {
  __shared__ int first[64], second[64];
  const int t = int(threadIdx.x);
  first[t] = t;
  second[t] = 100 + t;
  __syncthreads();
  y[t] = second[63 - t] + first[t ^ 1];
}
FINE("two arrays") {
  Device<int> y(64);
  two_arrays<<<1, 64>>>(y);
  expect(y.values()[2] == 161 + 3, "one number of each");
}
__global__ void same_word(int* y, bool all) {
  __shared__ int s;
  if (all || threadIdx.x == 0) s = int(threadIdx.x);
  __syncthreads();
  y[threadIdx.x] = s;
}
FINE("one thread writes a word for all") {
  Device<int> y(64);
  same_word<<<1, 64>>>(y, false);
}
FAULT("all threads write a word", "race: a store") {
  Device<int> y(64);
  same_word<<<1, 64>>>(y, true);
}
__global__ void within_warp(int* y, bool sync) {
  __shared__ int s[32];
  s[threadIdx.x] = int(threadIdx.x);
  if (sync) __syncwarp();
  y[threadIdx.x] = s[31 - threadIdx.x];
}
FINE("lanes exchange with __syncwarp") {
  Device<int> y(32);
  within_warp<<<1, 32>>>(y, true);
  expect(y.values()[0] == 31, "lane 31's");
}
FAULT("lanes exchange without __syncwarp", "race: a load of shared memory that thread 31 wrote") {
  Device<int> y(32);
  within_warp<<<1, 32>>>(y, false);
}
__global__ void by_shuffle(int* y) {
  __shared__ int s[32];
  s[threadIdx.x] = int(threadIdx.x);
  const int same = __shfl_sync(0xffffffffu, int(threadIdx.x), int(threadIdx.x));
  y[threadIdx.x] = s[31 - same];
}
FAULT("lanes exchange with only a shuffle between",
      "race: a load of shared memory that thread 31 wrote") {
  Device<int> y(32);
  by_shuffle<<<1, 32>>>(y);
}
__global__ void halves(unsigned short* y) {
  __shared__ unsigned short s[64];
  s[threadIdx.x] = (unsigned short)threadIdx.x;
  __syncthreads();
  y[threadIdx.x] = s[63 - threadIdx.x];
}
FINE("two warps write the halves of words") {
  Device<unsigned short> y(64);
  halves<<<1, 64>>>(y);
}
__global__ void dynamic(float* y, int at) {
  extern __shared__ float s[];
  s[threadIdx.x] = 1;
  __syncthreads();
  y[threadIdx.x] = s[at];
}
FINE("dynamic shared memory") {
  Device<float> y(64);
  dynamic<<<1, 64, 256>>>(y, 63);
}
FAULT("beyond dynamic shared memory", "out of bounds: a load of 4 bytes of shared memory") {
  Device<float> y(64);
  dynamic<<<1, 64, 256>>>(y, 64);
}
FAULT("less dynamic shared memory than is used",
      "out of bounds: a store of 4 bytes of shared memory") {
  Device<float> y(64);
  dynamic<<<1, 64, 252>>>(y, 0);
}
FAULT("what a block has not written of its memory", "unwritten: a load of shared memory") {
  Device<float> y(64);
  dynamic<<<1, 64, 512>>>(y, 64);
}
__global__ void odd_pair(float* y, int at) {
  __shared__ alignas(16) float s[8];
  if (threadIdx.x == 0)
    for (int i = 0; i < 8; ++i) s[i] = float(i);
  __syncthreads();
  const float2 two = *reinterpret_cast<const float2*>(s + at);
  y[threadIdx.x] = two.x + two.y;
}
FINE("a pair in shared memory") {
  Device<float> y(32);
  odd_pair<<<1, 32>>>(y, 2);
}
FAULT("a pair at an odd place of shared memory", "misaligned: a load of 8 bytes") {
  Device<float> y(32);
  odd_pair<<<1, 32>>>(y, 3);
}

__global__ void barrier_if(int* y, int first) {
  if (int(threadIdx.x) >= first) __syncthreads();
  y[threadIdx.x] = 1;
}
FINE("a barrier that all reach") {
  Device<int> y(64);
  barrier_if<<<1, 64>>>(y, 0);
}
FAULT("a barrier that a warp does not reach", "barrier: threads wait") {
  Device<int> y(64);
  barrier_if<<<1, 64>>>(y, 32);
}
FAULT("a barrier that half a warp does not reach", "barrier: in diverged code") {
  Device<int> y(64);
  barrier_if<<<1, 64>>>(y, 16);
}
__global__ void votes_of_block(int* y, const int* x) {
  const int t = int(threadIdx.x);
  y[t] = __syncthreads_count(x[t] > 9) + 1000 * __syncthreads_and(x[t] < 96) +
         2000 * __syncthreads_or(x[t] == 70) + 4000 * __syncthreads_or(x[t] < 0);
}
FINE("votes of a block") {
  Device<int> x(counting<int>(96)), y(96);
  votes_of_block<<<1, 96>>>(y, x);
  expect(y.values() == std::vector<int>(96, 86 + 3000), "the votes");
}
__global__ void early_return(int* y, int n) {
  if (int(threadIdx.x) >= n) return;
  __syncthreads();
  y[threadIdx.x] = 1;
}
FAULT("a barrier after some threads have returned", "barrier: ") {
  Device<int> y(64);
  early_return<<<1, 64>>>(y, 40);
}
__global__ void pingpong(int* y) {  // no barrier in one iteration
  __shared__ int s[2][64];
  const int t = int(threadIdx.x);
  s[0][t] = t;
  __syncthreads();
  for (int i = 0; i < 4; ++i) {
    s[(i + 1) & 1][t] = s[i & 1][63 - t];
    if (i != 2) __syncthreads();
  }
  y[t] = s[0][t];
}
FAULT("one barrier of a loop is left out", "race: a ") {
  Device<int> y(64);
  pingpong<<<1, 64>>>(y);
}

}  // namespace
