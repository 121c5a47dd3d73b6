// A B operand packed once for many products with its submatrices. In attention, for example, all
// blocks of queries are multiplied with the same keys.
#pragma once

#include <cstdint>

#include "gemm.h"

namespace stretto {

/// A packed B, of f32, f64 or bf16.
template <class T>
class PackedB {
 public:
  /// Returns the size in bytes of the packed B [k, n]; 0 if packing it in advance has no benefit.
  static int64_t bytes(int64_t k, int64_t n, bool transposed);

  /// Packs B [k, n] into `to`: bytes() bytes, aligned to 64. If `to` is null, each product packs B
  /// itself. B and `to` must outlive the products.
  void pack(int64_t k, int64_t n, MatrixRef<T> b, void* to);

  /// Returns the submatrix of B without its first p rows and j columns.
  PackedB from(int64_t p, int64_t j) const {
    PackedB part = *this;
    part.row_ += p, part.column_ += j;
    return part;
  }

  /// Computes C [m, n] = alpha · A [m, k] · (the first k rows and n columns of B) + beta · C on the
  /// calling thread, bit-identical to gemm. Submatrices that do not start at a tile boundary are
  /// packed again.
  void gemm(int64_t m, int64_t n, int64_t k, compute_t<T> alpha, MatrixRef<T> a, compute_t<T> beta,
            compute_t<T>* c, int64_t ldc) const;

 private:
  MatrixRef<T> b_ = {};
  int64_t k_ = 0;                 // rows of the whole B
  int64_t row_ = 0, column_ = 0;  // of the submatrix
  const void* packed_ = nullptr;
  int products_ = 0;  // bf16 products per product (core/gemm/tiles.h); 0: packed as panels
};

}  // namespace stretto
