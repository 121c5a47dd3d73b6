// Matrix products on the CPU, by kernels of our own (core/gemm/kernels.h), chosen once by what the
// processor offers (core/cpu.h).
//
// An element of C is a sum of sums of at most 256 terms, whose limits depend on k only: a row alone
// has the bits that it has in a batch, and any number of threads gives the same.
#pragma once

#include <cstdint>
#include <string>

#include "../dtype.h"
#include "precision.h"

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

/// What is done to a product as it is made: called once for each part [rows, columns] of C, at (i,
/// j), when its sums are ready and still in the cache, on the thread that has made them. Parts are
/// cut as it suits; together they are C.
template <class T>
struct Epilogue {
  void (*run)(const void* context, int64_t i, int64_t j, int64_t rows, int64_t columns, T* sums,
              int64_t ld);
  const void* context;

  void operator()(int64_t i, int64_t j, int64_t rows, int64_t columns, T* sums, int64_t ld) const {
    run(context, i, j, rows, columns, sums, ld);
  }
};
/// That of a callable, which must outlive it.
template <class T, class F>
Epilogue<T> epilogue_of(const F& f) {
  return {[](const void* context, int64_t i, int64_t j, int64_t rows, int64_t columns, T* sums,
             int64_t ld) { (*static_cast<const F*>(context))(i, j, rows, columns, sums, ld); },
          &f};
}

/// C [m, n] = alpha · A [m, k] · B [k, n] + beta · C, row-major, on the calling thread.
/// With beta = 0 C is not read. k = 0 scales C.
void gemm(int64_t m, int64_t n, int64_t k, float alpha, MatrixRef<float> a, MatrixRef<float> b,
          float beta, float* c, int64_t ldc);
void gemm(int64_t m, int64_t n, int64_t k, double alpha, MatrixRef<double> a, MatrixRef<double> b,
          double beta, double* c, int64_t ldc);

/// The same on all threads, for one large product, and C's parts go through `epilogue`.
template <class T>
void gemm_parallel(int64_t m, int64_t n, int64_t k, T alpha, MatrixRef<T> a, MatrixRef<T> b, T beta,
                   T* c, int64_t ldc, const Epilogue<T>* epilogue = nullptr);

/// Whether products of bf16 have kernels here: AMX, or AVX-512 with bf16.
bool has_bf16_products();

/// The products of bf16, where `has_bf16_products()`, with sums in f32; subnormals are zeros.
/// C is f32, or bf16 rounded once after the row `bias` [n] (or none, null) is added: then C = A ·
/// B.
void gemm(int64_t m, int64_t n, int64_t k, float alpha, MatrixRef<BFloat16> a,
          MatrixRef<BFloat16> b, float beta, float* c, int64_t ldc);
void gemm(int64_t m, int64_t n, int64_t k, MatrixRef<BFloat16> a, MatrixRef<BFloat16> b,
          const BFloat16* bias, BFloat16* c, int64_t ldc);
void gemm_parallel(int64_t m, int64_t n, int64_t k, MatrixRef<BFloat16> a, MatrixRef<BFloat16> b,
                   const BFloat16* bias, BFloat16* c, int64_t ldc);
/// C = A · B of f32 in parts alone: `epilogue` keeps what is to stay of them.
void gemm_parallel(int64_t m, int64_t n, int64_t k, MatrixRef<BFloat16> a, MatrixRef<BFloat16> b,
                   const Epilogue<float>& epilogue);

/// On all threads, the f32 product with a B of bf16 that is widened while it is read, to the bits
/// of one that was widened before. False, with C as it was, where there is none: for more than a
/// few rows, and where the f32 product has other kernels than those of vectors.
bool gemm_widening(int64_t m, int64_t n, int64_t k, float alpha, MatrixRef<float> a,
                   MatrixRef<BFloat16> b, float beta, float* c, int64_t ldc);

}  // namespace stretto
