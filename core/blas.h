// Matrix products on the CPU: one `gemm` for f32 and f64 over OpenBLAS.
//
// OpenBLAS is opened at the first product, not linked, for one reason: it chooses its kernels when
// it is loaded, and versions older than the processor choose AVX2 kernels on AVX-512 machines,
// which halves the speed. We name the right core type first (OPENBLAS_CORETYPE, unless the user
// set it). Without OpenBLAS a blocked loop of our own serves: same results to rounding, slower.
// Where it is installed but cannot be opened or has no room for its buffers, products throw
// OutOfMemory: they would not have the same bits without it.
//
// A host that has opened the same libopenblas.so.0 shares it with us. The environment stays as the
// host has it, and so does its number of threads, but for the time that a product of ours runs.
// Where we are the first to open OpenBLAS it starts with one thread: openblas_set_num_threads(n),
// at any time that no product runs, gives it more for the host's own calls.
//
// OpenBLAS runs on one thread; `gemm_parallel` splits the work in tiles that depend on the sizes
// only, so results have the same bits with any number of threads.
#pragma once

#include <cstdint>

namespace stretto {

/// One row-major matrix operand: element (i, j) of the (possibly transposed) operand is
/// data[i·ld + j], or data[j·ld + i] when `transposed`.
template <class T>
struct MatrixRef {
  const T* data;
  int64_t ld;
  bool transposed = false;
};

/// C [m, n] = alpha · A [m, k] · B [k, n] + beta · C, row-major, on the calling thread.
/// With beta = 0 C is not read. k = 0 scales C.
void gemm(int64_t m, int64_t n, int64_t k, float alpha, MatrixRef<float> a, MatrixRef<float> b,
          float beta, float* c, int64_t ldc);
void gemm(int64_t m, int64_t n, int64_t k, double alpha, MatrixRef<double> a, MatrixRef<double> b,
          double beta, double* c, int64_t ldc);

/// The same on all threads, for one large product.
template <class T>
void gemm_parallel(int64_t m, int64_t n, int64_t k, T alpha, MatrixRef<T> a, MatrixRef<T> b, T beta,
                   T* c, int64_t ldc);

/// Which library serves: "OpenBLAS 0.3.21 SkylakeX", or "built-in".
const char* blas_description();

}  // namespace stretto
