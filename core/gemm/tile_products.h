// The micro-kernel of core/gemm/tiles.h in AMX tile instructions, which the template argument
// `Registers` executes or emulates. Tile registers 0 to 3 hold 32 × 32 elements of C, 4 and 5 two
// tiles of A, 6 and 7 two tiles of B.
#pragma once

#include <cstdint>

#include "tiles.h"

namespace stretto::kernels {
namespace {

template <class Registers>
void load_a(Registers& r, Tiles a, int term) {
  r.template load<4>(a.data + term * tile_size, 64);
  r.template load<5>(a.data + term * tile_size + a.stride, 64);
}
template <class Registers>
void load_b(Registers& r, Tiles b, int term) {
  r.template load<6>(b.data + term * tile_size, 64);
  r.template load<7>(b.data + term * tile_size + b.stride, 64);
}
template <class Registers>
void multiply(Registers& r) {
  r.template product<0, 4, 6>();
  r.template product<1, 4, 7>();
  r.template product<2, 5, 6>();
  r.template product<3, 5, 7>();
}

// Computes C (+)= A · B with 1 or 3 `products`, summed in the order given in core/gemm/tiles.h.
template <class Registers, int products>
void sum_tiles(const TileProduct& o) {
  constexpr int64_t next = tile_size * terms_of(products);
  float *const c = o.c, *const lower = c + 16 * o.ldc;
  const int64_t bytes = o.ldc * int64_t(sizeof(float));
  Registers r;
  if (o.add) {
    r.template load<0>(c, bytes);
    r.template load<1>(c + 16, bytes);
    r.template load<2>(lower, bytes);
    r.template load<3>(lower + 16, bytes);
  } else {
    r.template zero<0>();
    r.template zero<1>();
    r.template zero<2>();
    r.template zero<3>();
  }
  Tiles a = o.a, b = o.b;
  for (int64_t i = 0; i < o.depth; ++i, a.data += next, b.data += next) {
    if constexpr (products == 1) {
      load_a(r, a, 0), load_b(r, b, 0), multiply(r);
    } else {
      load_a(r, a, 1), load_b(r, b, 0), multiply(r);
      load_a(r, a, 0), multiply(r);
      load_b(r, b, 1), multiply(r);
    }
  }
  r.template store<0>(c, bytes);
  r.template store<1>(c + 16, bytes);
  r.template store<2>(lower, bytes);
  r.template store<3>(lower + 16, bytes);
}

template <class Registers>
void multiply_tiles(const TileProduct& o) {
  o.products == 1 ? sum_tiles<Registers, 1>(o) : sum_tiles<Registers, 3>(o);
}

}  // namespace
}  // namespace stretto::kernels
