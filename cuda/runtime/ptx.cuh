// PTX instructions that CUDA C++ does not offer, one function each, with PTX's names.
//
// Fragments are distributed over the lanes of a warp as in the PTX manual: of a 16 × 8 matrix of
// f32, lane l holds rows l / 4 and l / 4 + 8, columns 2 (l % 4) and 2 (l % 4) + 1.
#pragma once

#include <cstdint>

namespace stretto::cuda::ptx {

/// The address in shared memory that ldmatrix and cp.async expect.
__device__ inline uint32_t shared_address(const void* p) {
  return uint32_t(__cvta_generic_to_shared(p));
}

/// d [16, 8] += a [16, 16] · b [16, 8] in bf16, with f32 sums.
__device__ inline void mma(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
      "{%0,%1,%2,%3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

/// d [16, 8] += a [16, 8] · b [8, 8] in tf32 (f32 whose lowest 13 bits are ignored), with f32 sums.
__device__ inline void mma_tf32(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
      "{%0,%1,%2,%3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

/// x rounded to tf32: to nearest, ties away from zero.
__device__ inline uint32_t cvt_tf32(float x) {
  uint32_t r;
  asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(r) : "f"(x));
  return r;
}

/// Loads four 8 × 8 matrices of 16-bit elements; lanes 8m … 8m + 7 pass the rows'
/// addresses of matrix m.
__device__ inline void ldmatrix(uint32_t (&r)[4], uint32_t row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(row)
               : "memory");
}
__device__ inline void ldmatrix_trans(uint32_t (&r)[4], uint32_t row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(row)
               : "memory");
}

/// Begins an asynchronous copy of 16 bytes to shared memory. Unless `in_range`, it writes zeros and
/// does not read `from`.
__device__ inline void copy16(uint32_t to, const void* from, bool in_range = true) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from),
               "r"(in_range ? 16 : 0)
               : "memory");
}
/// As copy16(), for 4 bytes.
__device__ inline void copy4(uint32_t to, const void* from, bool in_range = true) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(to), "l"(from),
               "r"(in_range ? 4 : 0)
               : "memory");
}
__device__ inline void commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
/// Waits until at most N of the committed groups are still in flight.
template <int N>
__device__ inline void wait() {
  asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory");
}

/// 2^x with a relative error of 2^-22; denormals become 0.
__device__ inline float ex2(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

/// Two values rounded to bf16, the first in the lower half.
__device__ inline uint32_t cvt_pack(float low, float high) {
  uint32_t r;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(high), "f"(low));
  return r;
}

}  // namespace stretto::cuda::ptx
