// The kernels of f32 and f64 products: one set per instruction set (avx512.cpp, avx2.cpp, neon.cpp
// and portable.cpp in core/gemm/), instances of the template in core/gemm/tile.h.
#pragma once

#include <cstdint>

#include "../dtype.h"
#include "gemm.h"

namespace stretto::kernels {

/// The division of the rows of A and C into register tiles: `rows` of each tile, and the distance
/// between the first elements of A of two neighboring tiles.
struct TileRows {
  int64_t rows, stride;
};

/// The kernels of one type. A tile of C of at most `rows` × `columns` stays in registers during the
/// loop over k (docs/gemm.md has a picture).
template <class T>
struct Gemm {
  int64_t rows, columns;

  /// Packs B [k, n] with n ≤ `columns` to a panel [k, columns], zero from column n on.
  void (*pack_b)(MatrixRef<T> b, int64_t k, int64_t n, T* panel);

  /// Packs A [m, k], which is stored transposed, to panels [m / step][k][rows] for tiles of `step`
  /// rows.
  void (*pack_a)(MatrixRef<T> a, int64_t m, int64_t k, int64_t step, T* panels);

  /// Computes a product with n ≤ `columns` and a B of at least `columns` readable columns, not
  /// transposed. Each element is summed over k in ascending order from zero, with fused
  /// multiply-adds if the CPU has them. Tiles have at most `rows` rows; in each tile A has the layout
  /// of `product.a`.
  void (*panel)(const MatrixProduct<T>& product, TileRows tiles);

  /// Computes a product with m ≤ `few_rows` and any n, with partial sums of `block` terms that are
  /// added to C one after the other. A is stored transposed, [k, m] without gaps. B, stored
  /// transposed or not, is read once, unpacked, at memory bandwidth: for decoding, which uses each
  /// weight once.
  void (*few)(const MatrixProduct<T>& product, int64_t block);

  /// Computes the same with a B in bf16, widened while it is read; null unless T is float.
  void (*few_of_bf16)(const MatrixProduct<T, BFloat16>& product, int64_t block);
};

inline constexpr int64_t few_rows = 8;  // the most rows of Gemm::few

template <class T>
const Gemm<T>& gemm_avx512();
template <class T>
const Gemm<T>& gemm_avx2();
template <class T>
const Gemm<T>& gemm_neon();
template <class T>
const Gemm<T>& gemm_portable();

}  // namespace stretto::kernels
