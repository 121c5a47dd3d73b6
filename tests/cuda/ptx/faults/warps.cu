// Operations of several lanes: shuffles, votes, atomics; and divergent code.
#include "faults.h"

namespace {

constexpr unsigned full = 0xffffffffu;

__global__ void sums(int* y, int lanes) {
  int v = int(threadIdx.x);
  if (int(threadIdx.x) < lanes) {
    for (int k = 16; k > 0; k /= 2) v += __shfl_xor_sync(full, v, k);
  }
  y[threadIdx.x] = v;
}
FINE("a sum over a warp") {
  Device<int> y(32);
  sums<<<1, 32>>>(y, 32);
  expect(y.values() == std::vector<int>(32, 496), "the sum");
}
FAULT("a shuffle that half the warp does not reach", "shuffle: reads lane 16") {
  Device<int> y(32);
  sums<<<1, 32>>>(y, 16);
}
__global__ void shuffles(int* y) {
  const int l = int(threadIdx.x);
  y[l] = __shfl_up_sync(full, l, 3);
  y[32 + l] = __shfl_down_sync(full, l, 3);
  y[64 + l] = __shfl_sync(full, l, l / 2);
  y[96 + l] = __shfl_xor_sync(full, l, 5, 8);
  y[128 + l] = __shfl_down_sync(full, l, 1, 4);
}
FINE("shuffles of all kinds") {
  Device<int> y(160);
  shuffles<<<1, 32>>>(y);
  const std::vector<int> v = y.values();
  for (int l = 0; l < 32; ++l) {
    expect(v[l] == (l >= 3 ? l - 3 : l), "up");
    expect(v[32 + l] == (l < 29 ? l + 3 : l), "down");
    expect(v[64 + l] == l / 2, "idx");
    expect(v[96 + l] == (l ^ 5), "xor of 8");
    expect(v[128 + l] == (l % 4 < 3 ? l + 1 : l), "down of 4");
  }
}
__global__ void from_absent(int* y) {
  if (threadIdx.x < 16) y[threadIdx.x] = __shfl_xor_sync(0xffffu, int(threadIdx.x), 16);
}
FAULT("a shuffle that reads a lane outside of its mask", "shuffle: reads lane 16") {
  Device<int> y(16);
  from_absent<<<1, 32>>>(y);
}
__global__ void foreign_mask(int* y) { y[threadIdx.x] = __shfl_sync(0xffffu, int(threadIdx.x), 0); }
FAULT("a shuffle by lanes that the mask does not name", "diverged: a lane that its own mask") {
  Device<int> y(32);
  foreign_mask<<<1, 32>>>(y);
}
__global__ void short_warp(int* y) { y[threadIdx.x] = __shfl_down_sync(full, int(threadIdx.x), 1); }
FAULT("a shuffle from beyond the end of the block", "shuffle: reads lane 20") {
  Device<int> y(20);
  short_warp<<<1, 20>>>(y);
}
__global__ void votes(unsigned* y) {
  const bool odd = threadIdx.x % 2;
  y[threadIdx.x] = __ballot_sync(full, odd) + unsigned(__all_sync(full, threadIdx.x < 32)) +
                   unsigned(__any_sync(full, threadIdx.x == 40)) +
                   __match_any_sync(full, threadIdx.x / 8);
  y[32 + threadIdx.x] = __reduce_add_sync(full, threadIdx.x) + __reduce_max_sync(full, threadIdx.x);
}
FINE("votes") {
  Device<unsigned> y(64);
  votes<<<1, 32>>>(y);
  expect(y.values()[9] == 0xaaaaaaaau + 1 + 0xff00u, "the votes of lane 9");
  expect(y.values()[40] == 496 + 31, "the reductions");
}
__global__ void votes_apart(unsigned* y) {
  if (threadIdx.x % 2) {
    y[threadIdx.x] = __ballot_sync(full, threadIdx.x < 9);
  } else {
    y[threadIdx.x] = 3 * __ballot_sync(full, threadIdx.x < 7) + 1;
  }
}
FAULT("a vote in two places", "diverged: lanes of the mask are elsewhere") {
  Device<unsigned> y(32);
  votes_apart<<<1, 32>>>(y);
}
__global__ void barrier_and_vote(unsigned* y) {
  if (threadIdx.x < 16) {
    y[threadIdx.x] = __ballot_sync(full, true);
  } else {
    __syncthreads();
  }
}
FAULT("half a warp votes, half is at a barrier", "diverged: ") {
  Device<unsigned> y(32);
  barrier_and_vote<<<1, 32>>>(y);
}
__global__ void paths(int* y, const int* x) {  // iterations per lane, and a switch
  int v = x[threadIdx.x], n = 0;
  while (v != 1) {
    v = v % 2 ? 3 * v + 1 : v / 2;
    ++n;
  }
  switch (threadIdx.x % 5) {
    case 0:
      n += 1000;
      break;
    case 1:
      n *= 3;
      break;
    case 2:
      n -= 7;
      break;
    case 3:
      n ^= 85;
      break;
    default:
      n = -n;
  }
  y[threadIdx.x] = n + __popc(__activemask());
}
FINE("lanes that go their own ways meet again") {
  std::vector<int> x(32);
  for (int i = 0; i < 32; ++i) x[i] = 3 + 5 * i;
  Device<int> in(x), y(32);
  paths<<<1, 32>>>(y, in);
  const std::vector<int> got = y.values();
  for (int i = 0; i < 32; ++i) {
    int v = x[i], n = 0;
    for (; v != 1; ++n) v = v % 2 ? 3 * v + 1 : v / 2;
    const int e[] = {n + 1000, n * 3, n - 7, n ^ 85, -n};
    expect(got[i] == e[i % 5] + 32, "a path");
  }
}

__global__ void numbers(double* y, const double* x, const long long* k) {
  const int l = int(threadIdx.x);
  const float f = float(x[l]);
  const long long i = k[l];
  const unsigned u = unsigned(i);
  y[l] = __fadd_rd(f, 1e-9f);
  y[32 + l] = __fdiv_ru(f, 3.0f);
  y[64 + l] = __double2float_rz(x[l]);
  y[96 + l] = double(__mul64hi(i, i));
  y[128 + l] = double(__funnelshift_l(u, ~u, l)) + __clzll(i) + __brev(u) + __ffs(int(u)) * 0.5;
  y[160 + l] = double(i / (l - 7 ? l - 7 : 1)) + double(i % 1000003);
  y[192 + l] = double(__float2int_rn(f)) + double(__float2uint_rz(f)) + floor(x[l]) + rint(f);
  y[224 + l] = __byte_perm(u, 0x01020304u, 0x5a17u);
}
FINE("roundings, shifts and bits") {
  std::vector<double> x(32);
  std::vector<long long> k(32);
  for (int i = 0; i < 32; ++i) {
    x[i] = 0.37 * (i + 1) - 4.1;
    k[i] = 0x123456789abcdefll * (i + 1) * (i % 3 ? 1 : -1);
  }
  Device<double> in(x), y(256);
  Device<long long> in2(k);
  numbers<<<1, 32>>>(y, in, in2);
  const std::vector<double> v = y.values();
  for (int l = 0; l < 32; ++l) {
    const float f = float(x[l]);
    const double exact = double(f) + double(1e-9f);
    expect(v[l] <= exact && v[l] >= exact - 1e-6 && v[l] != double(f) + 1, "rounded down");
    expect(v[32 + l] * 3 >= double(f) && v[32 + l] <= double(f) / 3 + 1e-6, "rounded up");
    expect(std::abs(v[64 + l]) <= std::abs(x[l]), "towards zero");
    expect(v[96 + l] == double((long long)((__int128(k[l]) * k[l]) >> 64)), "the upper half");
    const int d = l - 7 ? l - 7 : 1;
    expect(v[160 + l] == double(k[l] / d) + double(k[l] % 1000003), "division");
  }
}

__global__ void products_and_sums(float* y, float x) {
  float p;
  asm("mul.f32 %0, %1, %1;" : "=f"(p) : "f"(x));
  asm("sub.f32 %0, %1, %2;" : "=f"(y[0]) : "f"(p), "f"(1 + 0x1p-11f));
  asm("mul.f32 %0, %1, %1;" : "=f"(p) : "f"(x));
  asm("sub.f32 %0, %1, %2;" : "=f"(y[1]) : "f"(1 + 0x1p-11f), "f"(p));
  asm("mul.f32 %0, %1, %1;" : "=f"(p) : "f"(x));
  asm("add.f32 %0, %1, %2;" : "=f"(y[2]) : "f"(-1 - 0x1p-11f), "f"(p));
  asm("mul.rn.f32 %0, %1, %1;" : "=f"(p) : "f"(x));
  asm("sub.f32 %0, %1, %2;" : "=f"(y[3]) : "f"(p), "f"(1 + 0x1p-11f));
}
FINE("products and sums are rounded separately") {
  Device<float> y(4);
  products_and_sums<<<1, 1>>>(y, 1 + 0x1p-12f);
  expect(y.values() == std::vector<float>{0, 0, 0, 0}, "the sums");
}
FINE("products and sums without a rounding mode are fused with PTX_CONTRACT") {
  setenv("PTX_CONTRACT", "1", 1);
  Device<float> y(4);
  products_and_sums<<<1, 1>>>(y, 1 + 0x1p-12f);
  expect(y.values() == std::vector<float>{0x1p-24f, -0x1p-24f, 0x1p-24f, 0}, "the sums");
}

__global__ void counters(unsigned* y) {
  atomicAdd(y, 1u);
  atomicMin(y + 1, threadIdx.x + 7);
  atomicCAS(y + 2, 0u, threadIdx.x + 1);
  atomicInc(y + 3, 4u);
  atomicExch(y + 4, 9u);
  atomicOr(y + 5, 1u << threadIdx.x);
}
FINE("atomics of all kinds") {
  Device<unsigned> y(std::vector<unsigned>{0, 100, 0, 0, 0, 0});
  counters<<<1, 32>>>(y);
  expect(y.values() == std::vector<unsigned>{32, 7, 1, 2, 9, full}, "the counters");
}

}  // namespace
