// A B operand packed once for many products with parts of it, as attention has them: each block of
// queries meets the same keys.
#pragma once

#include <cstdint>

#include "gemm.h"

namespace stretto {

template <class T>
class PackedB {
 public:
  /// Bytes that B [k, n] takes; 0 where gemm reads it where it is, or packs it in another way.
  static int64_t bytes(int64_t k, int64_t n, bool transposed);

  /// Packs B [k, n] to so many bytes, aligned to 64; without them, null, B is packed by each
  /// product. Both stay while products use them.
  void pack(int64_t k, int64_t n, MatrixRef<T> b, void* to);

  /// C [m, n] = alpha · A [m, k] · (rows p … p + k − 1 and columns j … j + n − 1 of B) + beta · C,
  /// as gemm and to its bits, on the calling thread. Parts that begin in the midst of a tile are
  /// packed anew.
  void gemm(int64_t m, int64_t n, int64_t k, compute_t<T> alpha, MatrixRef<T> a, int64_t p,
            int64_t j, compute_t<T> beta, compute_t<T>* c, int64_t ldc) const;

 private:
  MatrixRef<T> b_ = {};
  int64_t k_ = 0, n_ = 0;
  const void* packed_ = nullptr;
  int products_ = 0;  // of tiles; 0 for panels
};

}  // namespace stretto
