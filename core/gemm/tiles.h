// Products of bf16 with f32 sums. Three micro-kernels read the same packed format: AMX, AVX-512
// with bf16 (vdpbf16ps), and an emulation of AMX that runs on any processor.
//
// A tile has 1 KiB. A tile of A has 16 rows with 32 values of k; a tile of B has 16 pairs of k for
// 16 columns. An f32 operand is rounded to bf16, or split into two bf16 terms, x ≈ hi + lo, where
// lo is the remainder x − hi, rounded to bf16. In packed operands the tiles of the terms follow each
// other.
#pragma once

#include <cstdint>

#include "../dtype.h"
#include "gemm.h"

namespace stretto::kernels {

inline constexpr int64_t tile_side = 16, tile_k = 32, tile_size = tile_side * tile_k;
inline constexpr int64_t tile_block = 2 * tile_side;  // micro-kernels compute 32 × 32 of C

/// Returns the number of bf16 terms of an operand, if a product is computed as `products` products.
constexpr int terms_of(int products) { return products == 3 ? 2 : 1; }
/// Returns the number of elements of the tiles of 16 rows or columns, with k values each.
constexpr int64_t tiles_size(int64_t k, int terms) {
  return (k + tile_k - 1) / tile_k * tile_size * terms;
}

/// Packed tiles of A or B: those of the first 16 rows or columns, over all of k. The tiles of the
/// next 16 are `stride` elements later.
struct Tiles {
  const uint16_t* data;
  int64_t stride;
  /// Returns the tiles from a row or column on, a multiple of 16.
  Tiles from(int64_t outer) const { return {data + outer / tile_side * stride, stride}; }
};

/// Packs x [outer, k], which is A or the transpose of B (`of_b`), to [outer / 16][k / 32][terms]
/// tiles, padded with zeros.
template <class T>
using PackTiles = void (*)(const MatrixRef<T>& x, bool of_b, int64_t outer, int64_t k, int terms,
                           uint16_t* tiles);

/// The arguments of a micro-kernel: C [32, 32] (+)= A · B, at least its first `rows` rows, over
/// `depth` tiles of k. `products` is the number of products of terms, summed in this order:
///   1  hi·hi
///   3  lo·hi + hi·hi + hi·lo, one tile of k after the other
struct TileProduct {
  int products;
  int64_t depth;
  Tiles a, b;
  float* c;
  int64_t ldc;
  bool add;
  int64_t rows;
  // Work that a micro-kernel may leave out: columns of C from `columns` on, and the pairs of k from
  // `pairs` on in the last tile, which are zeros.
  int64_t columns, pairs;
};

/// Returns TileProduct::pairs for k values of k. One pair of zeros remains, if there is one: it turns
/// a sum of −0 into 0, as all of them do.
constexpr int64_t pairs_of_last_tile(int64_t k) {
  const int64_t used = k % tile_k == 0 ? tile_k / 2 : (k % tile_k + 1) / 2;
  return used < tile_k / 2 ? used + 1 : used;
}

/// A micro-kernel, with the packing of its operands.
struct TileKernels {
  PackTiles<float> pack_f32;
  PackTiles<BFloat16> pack_bf16;
  void (*multiply)(const TileProduct& product);
  void (*begin)();      // called on each thread before its products
  void (*end)();        // and after them
  bool narrow = false;  // with 16 columns, multiply() does not write to the others
};

/// Returns the largest number of rows of A for which vector kernels that read an unpacked B are
/// limited by memory bandwidth.
constexpr int64_t most_few_rows(int products) { return products == 3 ? 4 : 8; }

/// Kernels for a product with m ≤ `most_few_rows`, alpha 1 and beta 0 or 1, in AVX-512 with bf16,
/// bit-identical to the micro-kernels. Only A is packed, by pack(), into bytes() bytes; B, stored
/// transposed or not, is read once, unpacked.
template <class T>
struct FewRows {
  int64_t (*bytes)(int products, int64_t m, int64_t k);
  void (*pack)(int products, int64_t m, int64_t k, MatrixRef<T> a, void* packed);
  void (*run)(int products, const MatrixProduct<T>& product, const void* packed);
};

/// Returns the kernels bit-identical to tile_kernels(); null if the CPU has no bf16 vectors.
template <class T>
const FewRows<T>* few_rows_of_tiles();

/// Returns the micro-kernel in use: AMX or its emulation; else vdpbf16ps, which supports only one
/// product; null if the CPU has neither.
const TileKernels* tile_kernels();

const TileKernels& tiles_amx();
const TileKernels& tiles_emulated();
const TileKernels& tiles_avx512();
template <class T>
const FewRows<T>& few_rows_amx();
template <class T>
const FewRows<T>& few_rows_avx512();
template <class T>
void pack_tiles_portable(const MatrixRef<T>& x, bool of_b, int64_t outer, int64_t k, int terms,
                         uint16_t* tiles);

/// Computes an f32 product as `products` products of bf16 terms, on the calling thread or on all.
/// Returns false, with C unchanged, if an operand has a value that bf16 cannot represent: NaN,
/// infinity or |x| ≥ 0x7f7f8000 (as bits).
bool tiles_gemm(bool threads, int products, const MatrixProduct<float>& product,
                const Epilogue<float>* epilogue);

/// Returns the size of the packed tiles of B [k, n] in bytes.
int64_t packed_tiles_bytes(int products, int64_t k, int64_t n);
/// Packs B, of f32 or bf16. Returns false if B has a value that bf16 cannot represent.
template <class T>
bool pack_tiles(int products, int64_t k, int64_t n, MatrixRef<T> b, uint16_t* tiles);

/// Computes a product with packed tiles of B instead of product.b on the calling thread. Returns
/// false, with C unchanged, if A has a value that bf16 cannot represent.
template <class T>
bool packed_tiles_gemm(int products, const MatrixProduct<T>& product, Tiles b);

}  // namespace stretto::kernels
