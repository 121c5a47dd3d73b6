// Matrix products on the CPU, with the library's own kernels (core/gemm/kernels.h), chosen by
// instruction set (core/cpu.h).
//
// Order of summation: an element of C is a sum of partial sums of at most 256 terms (512 for
// products of bf16), whose boundaries depend on k only. A row is therefore bit-identical whether
// computed alone or in a batch, with any number of threads.
#pragma once

#include <cstdint>
#include <string>

#include "../dtype.h"
#include "precision.h"

namespace stretto {

/// A matrix operand: element (i, j) is data[i·ld + j], or data[j·ld + i] if `transposed`.
template <class T>
struct MatrixRef {
  const T* data;
  int64_t ld;
  bool transposed = false;

  /// Returns the operand without its first i rows and j columns. An empty operand may be null.
  MatrixRef from(int64_t i, int64_t j) const {
    return {data ? data + (transposed ? j * ld + i : i * ld + j) : data, ld, transposed};
  }
};

/// A product C [m, n] = alpha · A [m, k] · B [k, n] + beta · C, with a row-major C. If beta = 0, C
/// is not read; k = 0 scales C by beta.
template <class T, class OfB = T>
struct MatrixProduct {
  int64_t m, n, k;
  compute_t<T> alpha;
  MatrixRef<T> a;
  MatrixRef<OfB> b;
  compute_t<T> beta;
  compute_t<T>* c;
  int64_t ldc;

  /// Returns the product for a block of C, of size [rows, count] at (i, j).
  MatrixProduct block(int64_t i, int64_t j, int64_t rows, int64_t count) const {
    return {rows, count, k, alpha, a.from(i, 0), b.from(0, j), beta, c ? c + i * ldc + j : c, ldc};
  }
  /// Returns the product for `count` columns of C from column j on.
  MatrixProduct columns(int64_t j, int64_t count) const { return block(0, j, m, count); }
};

/// An operation fused into a product. Called once for each finished block [rows, columns] of C, at
/// (i, j), while it is in the cache, on the thread that computed it. The blocks partition C; their
/// sizes are unspecified.
template <class T>
struct Epilogue {
  void (*run)(const void* context, int64_t i, int64_t j, int64_t rows, int64_t columns, T* sums,
              int64_t ld);
  const void* context;

  void operator()(int64_t i, int64_t j, int64_t rows, int64_t columns, T* sums, int64_t ld) const {
    run(context, i, j, rows, columns, sums, ld);
  }
};
/// Returns an epilogue that calls f, which must outlive it.
template <class T, class F>
Epilogue<T> epilogue_of(const F& f) {
  return {[](const void* context, int64_t i, int64_t j, int64_t rows, int64_t columns, T* sums,
             int64_t ld) { (*static_cast<const F*>(context))(i, j, rows, columns, sums, ld); },
          &f};
}

/// Computes a product on the calling thread.
void gemm(int64_t m, int64_t n, int64_t k, float alpha, MatrixRef<float> a, MatrixRef<float> b,
          float beta, float* c, int64_t ldc);
void gemm(int64_t m, int64_t n, int64_t k, double alpha, MatrixRef<double> a, MatrixRef<double> b,
          double beta, double* c, int64_t ldc);

/// Computes one large f32 or f64 product on all threads, and calls `epilogue` for each block.
template <class T>
void gemm_parallel(const MatrixProduct<T>& product, const Epilogue<T>* epilogue = nullptr);

/// True if this CPU has kernels for bf16 products: AMX, or AVX-512 with bf16.
bool has_bf16_products();

// Products of bf16, with sums in f32; subnormals are flushed to zero. They require
// has_bf16_products().

/// Computes C = alpha · A · B + beta · C, with C in f32.
void gemm(int64_t m, int64_t n, int64_t k, float alpha, MatrixRef<BFloat16> a,
          MatrixRef<BFloat16> b, float beta, float* c, int64_t ldc);
/// Computes C = A · B + bias, with C in bf16, rounded once, and a row `bias` [n] or null.
void gemm(int64_t m, int64_t n, int64_t k, MatrixRef<BFloat16> a, MatrixRef<BFloat16> b,
          const BFloat16* bias, BFloat16* c, int64_t ldc);
/// Computes the same on all threads.
void gemm_parallel(int64_t m, int64_t n, int64_t k, MatrixRef<BFloat16> a, MatrixRef<BFloat16> b,
                   const BFloat16* bias, BFloat16* c, int64_t ldc);
/// Computes A · B in f32 on all threads without storing C. Calls `epilogue` for each block.
void gemm_parallel(int64_t m, int64_t n, int64_t k, MatrixRef<BFloat16> a, MatrixRef<BFloat16> b,
                   const Epilogue<float>& epilogue);

/// Computes the f32 product with a B in bf16 on all threads. B is converted to f32 while it is
/// read; the result is bit-identical to the result with a B converted before. Returns false, with C
/// unchanged, if A has more than kernels::few_rows rows or the f32 product would use bf16 products
/// (AMX, or precision `medium`).
bool gemm_widening(const MatrixProduct<float, BFloat16>& product);

}  // namespace stretto
