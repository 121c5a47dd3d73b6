// The micro-kernel of core/gemm/tiles.h in AMX tile instructions, which the template argument
// `GemmTiles` executes or emulates. Tile registers 0 to 3 hold 32 × 32 elements of C, 4 and 5 two
// tiles of A, 6 and 7 two tiles of B.
#pragma once

#include <cstdint>

#include "tiles.h"

namespace stretto::kernels {
namespace {

template <class GemmTiles>
void load_a(GemmTiles& t, const uint16_t* a, int64_t stride, int term) {
  t.template load<4>(a + term * tile_size, 64);
  t.template load<5>(a + term * tile_size + stride, 64);
}
template <class GemmTiles>
void load_b(GemmTiles& t, const uint16_t* b, int64_t stride, int term) {
  t.template load<6>(b + term * tile_size, 64);
  t.template load<7>(b + term * tile_size + stride, 64);
}
template <class GemmTiles>
void multiply(GemmTiles& t) {
  t.template product<0, 4, 6>();
  t.template product<1, 4, 7>();
  t.template product<2, 5, 6>();
  t.template product<3, 5, 7>();
}

// C (+)= A · B with 1, 3 or 6 `products`, summed in the order given in core/gemm/tiles.h.
template <class GemmTiles, int products>
void sum_tiles(int64_t tiles, const uint16_t* a, int64_t a_stride, const uint16_t* b,
               int64_t b_stride, float* c, int64_t ldc, bool add) {
  constexpr int64_t next = tile_size * (products == 6 ? 3 : products == 3 ? 2 : 1);
  const int64_t bytes = ldc * int64_t(sizeof(float));
  alignas(64) float part[products == 6 ? tile_block * tile_block : 1];
  const bool separate = products == 6 && add;  // compute the sum in `part`, then add it to C
  float* const to = separate ? part : c;
  const int64_t ld = separate ? tile_block : ldc, to_bytes = ld * int64_t(sizeof(float));
  {
    GemmTiles t;
    if (products < 6 && add) {
      t.template load<0>(c, bytes);
      t.template load<1>(c + 16, bytes);
      t.template load<2>(c + 16 * ldc, bytes);
      t.template load<3>(c + 16 * ldc + 16, bytes);
    } else {
      t.template zero<0>();
      t.template zero<1>();
      t.template zero<2>();
      t.template zero<3>();
    }
    for (int64_t i = 0; i < tiles; ++i) {
      const uint16_t *x = a + i * next, *y = b + i * next;
      if constexpr (products == 1) {
        load_a(t, x, a_stride, 0), load_b(t, y, b_stride, 0), multiply(t);
      } else if constexpr (products == 3) {
        load_a(t, x, a_stride, 1), load_b(t, y, b_stride, 0), multiply(t);
        load_a(t, x, a_stride, 0), multiply(t);
        load_b(t, y, b_stride, 1), multiply(t);
      } else {
        load_a(t, x, a_stride, 2), load_b(t, y, b_stride, 0), multiply(t);
        load_a(t, x, a_stride, 1), multiply(t);
        load_b(t, y, b_stride, 1), multiply(t);
        load_a(t, x, a_stride, 0), multiply(t);
        load_b(t, y, b_stride, 2), multiply(t);
      }
    }
    if constexpr (products == 6)
      for (int64_t i = 0; i < tiles; ++i)
        load_a(t, a + i * next, a_stride, 0), load_b(t, b + i * next, b_stride, 0), multiply(t);
    t.template store<0>(to, to_bytes);
    t.template store<1>(to + 16, to_bytes);
    t.template store<2>(to + 16 * ld, to_bytes);
    t.template store<3>(to + 16 * ld + 16, to_bytes);
  }
  if (separate)
    for (int64_t i = 0; i < tile_block; ++i)
      for (int64_t j = 0; j < tile_block; ++j) c[i * ldc + j] += part[i * tile_block + j];
}

template <class GemmTiles>
void tile_products(int products, int64_t tiles, const uint16_t* a, int64_t a_stride,
                   const uint16_t* b, int64_t b_stride, float* c, int64_t ldc, bool add, int64_t) {
  auto* const sum = products == 1   ? sum_tiles<GemmTiles, 1>
                    : products == 3 ? sum_tiles<GemmTiles, 3>
                                    : sum_tiles<GemmTiles, 6>;
  sum(tiles, a, a_stride, b, b_stride, c, ldc, add);
}

}  // namespace
}  // namespace stretto::kernels
