// Tensor cores and asynchronous copies, against plain loops.
#include "faults.h"

namespace {

// Small integers: exact in bf16 and tf32, and so are their sums in f32.
float entry(int i) { return float((i * 37) % 13 - 6); }
unsigned short bf16(float x) {
  unsigned u;
  std::memcpy(&u, &x, 4);
  return (unsigned short)(u >> 16);
}

// a [16, K], b [K, 8] row-major, d [16, 8] = a b + 1, by the manual's layout.
__global__ void mma_bf16(float* d, const unsigned short* a, const unsigned short* b, int lanes) {
  const int l = int(threadIdx.x), g = l / 4, t = l % 4;
  auto two = [](unsigned short x, unsigned short y) { return unsigned(x) | unsigned(y) << 16; };
  unsigned x[4], y[2];
  for (int i = 0; i < 4; ++i) {
    const int row = g + (i % 2) * 8, column = t * 2 + (i / 2) * 8;
    x[i] = two(a[row * 16 + column], a[row * 16 + column + 1]);
  }
  for (int i = 0; i < 2; ++i) {
    const int row = t * 2 + i * 8;
    y[i] = two(b[row * 8 + g], b[(row + 1) * 8 + g]);
  }
  float c[4] = {1, 1, 1, 1};
  if (l < lanes)
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, "
        "{%8,%9}, "
        "{%0,%1,%2,%3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(x[0]), "r"(x[1]), "r"(x[2]), "r"(x[3]), "r"(y[0]), "r"(y[1]));
  for (int i = 0; i < 4; ++i) d[(g + (i / 2) * 8) * 8 + t * 2 + i % 2] = c[i];
}
__global__ void mma_tf32(float* d, const float* a, const float* b) {
  const int l = int(threadIdx.x), g = l / 4, t = l % 4;
  unsigned x[4], y[2];
  for (int i = 0; i < 4; ++i) x[i] = __float_as_uint(a[(g + (i % 2) * 8) * 8 + t + (i / 2) * 4]);
  for (int i = 0; i < 2; ++i) y[i] = __float_as_uint(b[(t + i * 4) * 8 + g]);
  float c[4] = {1, 1, 1, 1};
  asm volatile(
      "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
      "{%0,%1,%2,%3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(x[0]), "r"(x[1]), "r"(x[2]), "r"(x[3]), "r"(y[0]), "r"(y[1]));
  for (int i = 0; i < 4; ++i) d[(g + (i / 2) * 8) * 8 + t * 2 + i % 2] = c[i];
}
template <int K>
void expect_product(const std::vector<float>& d) {
  for (int i = 0; i < 16; ++i)
    for (int j = 0; j < 8; ++j) {
      float sum = 1;
      for (int k = 0; k < K; ++k) sum += entry(i * K + k) * entry(100 + k * 8 + j);
      expect(d[size_t(i * 8 + j)] == sum, "the product");
    }
}
void run_bf16(int lanes) {
  std::vector<unsigned short> a, b;
  for (int i = 0; i < 256; ++i) a.push_back(bf16(entry(i)));
  for (int i = 0; i < 128; ++i) b.push_back(bf16(entry(100 + i)));
  Device<unsigned short> x(a), y(b);
  Device<float> d(128);
  mma_bf16<<<1, 32>>>(d, x, y, lanes);
  expect_product<16>(d.values());
}
FINE("mma of bf16") { run_bf16(32); }
FAULT("mma in diverged code", "diverged: ") { run_bf16(31); }
FINE("mma of tf32") {
  std::vector<float> a, b;
  for (int i = 0; i < 128; ++i) a.push_back(entry(i));
  for (int i = 0; i < 64; ++i) b.push_back(entry(100 + i));
  Device<float> x(a), y(b), d(128);
  mma_tf32<<<1, 32>>>(d, x, y);
  expect_product<8>(d.values());
}
FINE("tf32 does not see the low bits") {
  std::vector<float> a, b;
  for (int i = 0; i < 128; ++i) a.push_back(entry(i) * (1 + 0x1p-12f));
  for (int i = 0; i < 64; ++i) b.push_back(entry(100 + i));
  Device<float> x(a), y(b), d(128);
  mma_tf32<<<1, 32>>>(d, x, y);
  expect_product<8>(d.values());
}

// Four 8 × 8 matrices of halves, value 64 m + 8 r + c at row r, column c of matrix m.
__global__ void matrices(unsigned* y, int pitch, int shift, bool transposed, bool all_written) {
  __shared__ alignas(16) unsigned short s[4 * 8 * 16 + 8];
  const int l = int(threadIdx.x);
  for (int i = l; i < 256 - !all_written; i += 32) s[i / 8 * pitch + i % 8] = (unsigned short)i;
  __syncwarp();
  unsigned d[4];
  const unsigned at = unsigned(__cvta_generic_to_shared(s + l * pitch + shift));
  if (transposed) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(d[0]), "=r"(d[1]), "=r"(d[2]), "=r"(d[3])
                 : "r"(at));
  } else {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(d[0]), "=r"(d[1]), "=r"(d[2]), "=r"(d[3])
                 : "r"(at));
  }
  for (int m = 0; m < 4; ++m) y[m * 32 + l] = d[m];
}
void run_matrices(int shift, bool transposed, bool all_written) {
  Device<unsigned> y(128);
  matrices<<<1, 32>>>(y, 16, shift, transposed, all_written);
  const std::vector<unsigned> v = y.values();
  for (int m = 0; m < 4; ++m)
    for (int l = 0; l < 32; ++l) {
      const int g = l / 4, t = l % 4 * 2;
      const int first = transposed ? t * 8 + g : g * 8 + t, step = transposed ? 8 : 1;
      const unsigned e = unsigned(64 * m + first) | unsigned(64 * m + first + step) << 16;
      expect(v[size_t(m * 32 + l)] == e, "a fragment");
    }
}
FINE("ldmatrix") { run_matrices(0, false, true); }
FINE("ldmatrix, transposed") { run_matrices(0, true, true); }
FAULT("ldmatrix at an odd address", "misaligned: a load of 16 bytes") {
  run_matrices(1, false, true);
}
FAULT("ldmatrix of what nothing wrote", "unwritten: a load of shared memory") {
  run_matrices(0, false, false);
}
__global__ void move_matrix(unsigned* y, const unsigned* x) {
  unsigned d;
  asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(d) : "r"(x[threadIdx.x]));
  y[threadIdx.x] = d;
}
FINE("movmatrix") {
  std::vector<unsigned> x;
  for (unsigned l = 0; l < 32; ++l) x.push_back(2 * l | (2 * l + 1) << 16);  // row-major values
  Device<unsigned> in(x), y(32);
  move_matrix<<<1, 32>>>(y, in);
  for (unsigned l = 0; l < 32; ++l) {
    const unsigned g = l / 4, t = l % 4 * 2;
    expect(y.values()[l] == ((t * 8 + g) | ((t + 1) * 8 + g) << 16), "the transpose");
  }
}

// cp.async through two halves of shared memory.
__global__ void staged(float* y, const float* x, int groups_left, bool barrier, int bytes) {
  __shared__ alignas(16) float s[2][128];
  const int t = int(threadIdx.x);
  for (int h = 0; h < 2; ++h) {
    const unsigned to = unsigned(__cvta_generic_to_shared(&s[h][4 * t]));
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to),
                 "l"(x + h * 128 + 4 * t), "r"(bytes)
                 : "memory");
    asm volatile("cp.async.commit_group;" ::: "memory");
  }
  if (groups_left == 1) {
    asm volatile("cp.async.wait_group 1;" ::: "memory");
  } else if (groups_left == 0) {
    asm volatile("cp.async.wait_group 0;" ::: "memory");
  }
  if (barrier) __syncwarp();
  for (int h = 0; h < 2; ++h)
    for (int k = 0; k < 4; ++k) y[h * 128 + k * 32 + t] = s[h][k * 32 + t];
}
void run_staged(int left, bool barrier, int bytes) {
  Device<float> x(counting<float>(256)), y(256);
  staged<<<1, 32>>>(y, x, left, barrier, bytes);
  std::vector<float> e = counting<float>(256);
  for (int i = 0; i < 256; ++i)
    if (i % 4 * 4 >= bytes) e[size_t(i)] = 0;
  expect(y.values() == e, "the copy");
}
FINE("asynchronous copies") { run_staged(0, true, 16); }
FINE("asynchronous copies that fill up with zeros") { run_staged(0, true, 8); }
FAULT("reads a copy before it waits", "unwritten: a load of shared memory") {
  run_staged(2, true, 16);
}
FAULT("waits for the first copy, reads the second", "unwritten: a load of shared memory") {
  run_staged(1, true, 16);
}
FAULT("reads the copy of another lane without a barrier", "race: a load of shared memory") {
  run_staged(0, false, 16);
}

}  // namespace
