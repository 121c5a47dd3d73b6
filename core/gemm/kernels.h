// The kernels of f32 and f64 products: one set per instruction set (core/gemm/avx512.cpp,
// core/gemm/avx2.cpp, core/gemm/portable.cpp), instances of the template in core/gemm/tile.h.
#pragma once

#include <cstdint>

#include "../dtype.h"

namespace stretto::kernels {

/// The kernels of one type. A tile of C of at most `rows` × `columns` stays in registers during the
/// loop over k.
///
/// Element (i, p) of an A operand is a[i·row_stride + p], or a[p·row_stride + i] if `by_columns`.
template <class T>
struct Gemm {
  int64_t rows, columns;

  /// Packs B [k, n] with n ≤ `columns` to a panel [k, columns], zero from column n on.
  void (*pack_b)(const T* b, int64_t ld, bool transposed, int64_t k, int64_t n, T* panel);

  /// Packs A [m, k], which is stored transposed, to panels [m / step][k][rows] for tiles that read
  /// A with `by_columns`.
  void (*pack_a)(const T* a, int64_t ld, int64_t m, int64_t k, int64_t step, T* panels);

  /// Computes C [m, n] = alpha · A [m, k] · B [k, n] + beta · C for n ≤ `columns`, with a B of at
  /// least `columns` readable columns. Each element is summed over k in ascending order from zero,
  /// with fused multiply-adds if the CPU has them. If beta = 0, C is not read. Tiles have `step` ≤
  /// `rows` rows; their rows of A are `tile_stride` elements apart.
  void (*panel)(int64_t m, int64_t n, int64_t k, const T* a, int64_t row_stride, bool by_columns,
                int64_t step, int64_t tile_stride, const T* b, int64_t ldb, T alpha, T beta, T* c,
                int64_t ldc);

  /// Computes the same for m ≤ `few_rows` and any n, with partial sums of `block` terms that are
  /// added to C one after the other. `a` is the transpose of A, [k, m]. B, stored transposed or
  /// not, is read once, unpacked, at memory bandwidth: for decoding, which uses each weight once.
  void (*few)(int64_t m, int64_t n, int64_t k, int64_t block, const T* a, const T* b, int64_t ldb,
              bool transposed, T alpha, T beta, T* c, int64_t ldc);

  /// Computes the same with a B in bf16, widened while it is read; null unless T is float.
  void (*few_of_bf16)(int64_t m, int64_t n, int64_t k, int64_t block, const T* a, const BFloat16* b,
                      int64_t ldb, bool transposed, T alpha, T beta, T* c, int64_t ldc);
};

inline constexpr int64_t few_rows = 8;  // the most rows of Gemm::few

template <class T>
const Gemm<T>& gemm_avx512();
template <class T>
const Gemm<T>& gemm_avx2();
template <class T>
const Gemm<T>& gemm_portable();

}  // namespace stretto::kernels
