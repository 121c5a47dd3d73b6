// The kernels of f32 and f64 products, one set for each instruction set (core/gemm/avx512.cpp,
// core/gemm/avx2.cpp, core/gemm/portable.cpp), all of the template in core/gemm/tile.h.
#pragma once

#include <cstdint>

#include "../dtype.h"

namespace stretto::kernels {

/// A tile of C of at most `rows` × `columns` stays in registers while k goes by.
///
/// An A operand is `row_stride` apart from row to row with neighbouring k, or, where `by_columns`,
/// `row_stride` apart from k to k with neighbouring rows.
template <class T>
struct Gemm {
  int64_t rows, columns;

  /// Columns of B [k, n], n ≤ `columns`, to a panel [k, columns], zero from n on.
  void (*pack_b)(const T* b, int64_t ld, bool transposed, int64_t k, int64_t n, T* panel);

  /// A [m, k], transposed in memory, to panels [rows][k], whose tiles read it by columns.
  void (*pack_a)(const T* a, int64_t ld, int64_t m, int64_t k, int64_t step, T* panels);

  /// C [m, n] = alpha · A [m, k] · B [k, n] + beta · C for n ≤ `columns` and a B of at least
  /// `columns` readable columns: each element is the sum over k in rising order from zero, with
  /// fused multiply-adds where the processor has them. With beta = 0 C is not read. Tiles are
  /// `step` ≤ `rows` rows high, and their A `tile_stride` apart.
  void (*panel)(int64_t m, int64_t n, int64_t k, const T* a, int64_t row_stride, bool by_columns,
                int64_t step, int64_t tile_stride, const T* b, int64_t ldb, T alpha, T beta, T* c,
                int64_t ldc);

  /// The same for m ≤ `few_rows`, any n, and sums of `block` terms each, one added to C after the
  /// other; `a` is the transpose of A, [k, m]. Nothing else is packed: B, as it is or transposed in
  /// memory, is read once, where it is, as fast as memory gives it. Decoding takes each weight
  /// once.
  void (*few)(int64_t m, int64_t n, int64_t k, int64_t block, const T* a, const T* b, int64_t ldb,
              bool transposed, T alpha, T beta, T* c, int64_t ldc);

  /// The same with a B of bf16 that is widened while it is read; null but for f32.
  void (*few_of_bf16)(int64_t m, int64_t n, int64_t k, int64_t block, const T* a, const BFloat16* b,
                      int64_t ldb, bool transposed, T alpha, T beta, T* c, int64_t ldc);
};

inline constexpr int64_t few_rows = 8;

template <class T>
const Gemm<T>& gemm_avx512();
template <class T>
const Gemm<T>& gemm_avx2();
template <class T>
const Gemm<T>& gemm_portable();

}  // namespace stretto::kernels
