// Matrix products on the CPU, by kernels of our own (core/gemm_kernels.h), chosen once by what the
// processor offers (core/cpu.h).
//
// An element of C is a sum of sums of at most 256 terms, whose limits depend on k only: a row alone
// has the bits that it has in a batch, and any number of threads gives the same.
#pragma once

#include <cstdint>
#include <string>

namespace stretto {

/// One row-major matrix operand: element (i, j) of the (possibly transposed) operand is
/// data[i·ld + j], or data[j·ld + i] when `transposed`.
template <class T>
struct MatrixRef {
  const T* data;
  int64_t ld;
  bool transposed = false;

  /// The operand without its first i rows and j columns.
  MatrixRef from(int64_t i, int64_t j) const {
    return {data + (transposed ? j * ld + i : i * ld + j), ld, transposed};
  }
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

/// What serves: `cpu_description()`, or OpenBLAS and its version.
std::string gemm_description();

}  // namespace stretto
