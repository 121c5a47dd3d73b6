// Products of bf16 numbers with f32 sums, on one packed format that three micro-kernels read: AMX,
// AVX-512 with bf16 (vdpbf16ps), and an emulation of AMX by which its code runs on any processor.
//
// A tile is 1 KiB: of A 16 rows of 32 k, of B 16 pairs of k of 16 columns. An f32 operand is split
// into up to three bf16 terms, x = hi + mid + lo, each the rounded rest of those before it; packed,
// the tiles of the terms stand behind each other.
#pragma once

#include <cstdint>

#include "../dtype.h"
#include "gemm.h"

namespace stretto::kernels {

inline constexpr int64_t tile_side = 16, tile_k = 32, tile_size = tile_side * tile_k;
inline constexpr int64_t tile_block = 2 * tile_side;  // micro-kernels take 32 × 32 of C

/// Packs `outer` rows of A or columns of B, of k terms each, to [outer / 16][k / 32][terms] tiles,
/// zero where there are none. Element (o, p) is x[o·ld + p] where `along_k`, else x[p·ld + o].
template <class T>
using Pack = void (*)(const T* x, int64_t ld, bool along_k, bool of_b, int64_t outer, int64_t k,
                      int terms, uint16_t* tiles);

/// C [32, 32] (+)= A · B, of which at least `rows` rows: `tiles` of k, with `a_stride` and
/// `b_stride` from the first 16 rows or columns to the others. `products` of terms are summed:
///   1  hi·hi
///   3  mid·hi + hi·hi + hi·mid, tile by tile of k
///   6  first lo·hi + mid·hi + mid·mid + hi·mid + hi·lo, over all of k, then hi·hi, from zero, and
///      then C: so few roundings are of the size of the result that the error is below that of f32
struct TileKernels {
  Pack<float> pack_f32;
  Pack<BFloat16> pack_bf16;
  void (*block)(int products, int64_t tiles, const uint16_t* a, int64_t a_stride, const uint16_t* b,
                int64_t b_stride, float* c, int64_t ldc, bool add, int64_t rows);
  void (*begin)();  // on each thread, before its blocks
  void (*end)();
};

/// So many rows take B as fast as memory gives it, though all is done by vectors.
constexpr int64_t most_few_rows(int products) { return products == 6 ? 2 : products == 3 ? 4 : 8; }

/// C [m, n] (+)= A · B for m ≤ `most_few_rows`, to the bits of the micro-kernels, by AVX-512 with
/// bf16: sums of `block` terms, a multiple of 32. Nothing is packed but A, by `pack`, to `size`
/// bytes: B, as it is or transposed in memory, is read once, where it is.
template <class T>
struct FewRows {
  int64_t (*size)(int products, int64_t m, int64_t k);
  void (*pack)(int products, int64_t m, int64_t k, MatrixRef<T> a, void* packed);
  void (*run)(int products, int64_t m, int64_t n, int64_t k, int64_t block, const void* packed,
              const T* b, int64_t ldb, bool transposed, float* c, int64_t ldc, bool add);
};

/// Null where the vectors are missing.
template <class T>
const FewRows<T>* few_rows_of_tiles();

/// AMX where it serves or is emulated, else vdpbf16ps, which has no terms; null where neither is.
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

/// The f32 product of `products` products of terms, on the calling thread or on all. False, with
/// C as it was, where a value is too large for bf16 (|x| ≥ 0x7f7f8000, infinity, NaN).
bool tiles_gemm(bool threads, int products, int64_t m, int64_t n, int64_t k, float alpha,
                MatrixRef<float> a, MatrixRef<float> b, float beta, float* c, int64_t ldc,
                const Epilogue<float>* epilogue);

/// The tiles of B [k, n] with whole k, of f32 or bf16: their bytes, and whether bf16 has room for
/// all of B, which is packed if so.
int64_t packed_tiles_bytes(int products, int64_t k, int64_t n);
template <class T>
bool pack_tiles(int products, int64_t k, int64_t n, MatrixRef<T> b, uint16_t* tiles);

/// The product with B's rows from p and columns from j, both whole tiles, on the calling thread.
/// False, with C as it was, where bf16 has no room for all of A.
template <class T>
bool packed_tiles_gemm(int products, int64_t m, int64_t n, int64_t k, float alpha, MatrixRef<T> a,
                       int64_t k_of_b, const uint16_t* tiles, int64_t p, int64_t j, float beta,
                       float* c, int64_t ldc);

}  // namespace stretto::kernels
