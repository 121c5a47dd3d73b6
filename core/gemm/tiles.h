// Products of bf16 with f32 sums. Three micro-kernels read the same packed format: AMX, AVX-512
// with bf16 (vdpbf16ps), and an emulation of AMX that runs on any processor.
//
// A tile has 1 KiB. A tile of A has 16 rows with 32 values of k; a tile of B has 16 pairs of k for
// 16 columns. An f32 operand is split into up to three bf16 terms, x = hi + mid + lo. Each term is
// the remainder after the terms before it, rounded to bf16. In packed operands the tiles of the
// terms follow each other.
#pragma once

#include <cstdint>

#include "../dtype.h"
#include "gemm.h"

namespace stretto::kernels {

inline constexpr int64_t tile_side = 16, tile_k = 32, tile_size = tile_side * tile_k;
inline constexpr int64_t tile_block = 2 * tile_side;  // micro-kernels compute 32 × 32 of C

/// Packs `outer` rows of A or columns of B (`of_b`), with k elements each, to [outer / 16][k / 32]
/// [terms] tiles, padded with zeros. Element (o, p) is x[o·ld + p] if `along_k`, else x[p·ld + o].
template <class T>
using Pack = void (*)(const T* x, int64_t ld, bool along_k, bool of_b, int64_t outer, int64_t k,
                      int terms, uint16_t* tiles);

/// A micro-kernel, with the packing of its operands.
///
/// block() computes C [32, 32] (+)= A · B, at least the first `rows` rows, from `tiles` tiles of k.
/// `a_stride` and `b_stride` are the distances from the first 16 rows or columns to the others.
/// `products` is the number of products of terms, summed in this order:
///   1  hi·hi
///   3  mid·hi + hi·hi + hi·mid, one tile of k after the other
///   6  lo·hi + mid·hi + mid·mid + hi·mid + hi·lo over all of k, then hi·hi over all of k; the sum
///      starts at zero and is added to C last. Few roundings have the size of the result, so the
///      error is smaller than that of f32.
struct TileKernels {
  Pack<float> pack_f32;
  Pack<BFloat16> pack_bf16;
  void (*block)(int products, int64_t tiles, const uint16_t* a, int64_t a_stride, const uint16_t* b,
                int64_t b_stride, float* c, int64_t ldc, bool add, int64_t rows);
  void (*begin)();  // called on each thread before its blocks
  void (*end)();    // and after them
};

/// Returns the largest number of rows of A for which vector kernels that read an unpacked B are
/// limited by memory bandwidth.
constexpr int64_t most_few_rows(int products) { return products == 6 ? 2 : products == 3 ? 4 : 8; }

/// Kernels for C [m, n] (+)= A · B with m ≤ `most_few_rows`, in AVX-512 with bf16, bit-identical to
/// the micro-kernels. Partial sums have `block` terms, a multiple of 32. Only A is packed, by
/// pack(), into size() bytes; B, stored transposed or not, is read once, unpacked.
template <class T>
struct FewRows {
  int64_t (*size)(int products, int64_t m, int64_t k);
  void (*pack)(int products, int64_t m, int64_t k, MatrixRef<T> a, void* packed);
  void (*run)(int products, int64_t m, int64_t n, int64_t k, int64_t block, const void* packed,
              const T* b, int64_t ldb, bool transposed, float* c, int64_t ldc, bool add);
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
void pack_tiles_portable(const T* x, int64_t ld, bool along_k, bool of_b, int64_t outer, int64_t k,
                         int terms, uint16_t* tiles);

/// Computes an f32 product as `products` products of bf16 terms, on the calling thread or on all.
/// Returns false, with C unchanged, if an operand has a value that bf16 cannot represent: NaN,
/// infinity or |x| ≥ 0x7f7f8000 (as bits).
bool tiles_gemm(bool threads, int products, int64_t m, int64_t n, int64_t k, float alpha,
                MatrixRef<float> a, MatrixRef<float> b, float beta, float* c, int64_t ldc,
                const Epilogue<float>* epilogue);

/// Returns the size of the packed tiles of B [k, n] in bytes.
int64_t packed_tiles_bytes(int products, int64_t k, int64_t n);
/// Packs B, of f32 or bf16. Returns false if B has a value that bf16 cannot represent.
template <class T>
bool pack_tiles(int products, int64_t k, int64_t n, MatrixRef<T> b, uint16_t* tiles);

/// Computes the product with the packed rows from p and columns from j of B, both at a tile
/// boundary, on the calling thread. Returns false, with C unchanged, if bf16 cannot represent A.
template <class T>
bool packed_tiles_gemm(int products, int64_t m, int64_t n, int64_t k, float alpha, MatrixRef<T> a,
                       int64_t k_of_b, const uint16_t* tiles, int64_t p, int64_t j, float beta,
                       float* c, int64_t ldc);

}  // namespace stretto::kernels
