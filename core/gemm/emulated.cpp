// The AMX micro-kernel for any CPU, with its tile instructions emulated bit-identically, and the
// packing of its operands. As in the hardware, every fused multiply-add, addition and conversion to
// bf16 rounds to nearest even, and subnormal inputs and results are flushed to zero.
#include <cmath>
#include <cstring>

#include "core/gemm/tile_products.h"
#include "core/math.h"
#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

namespace stretto::kernels {
namespace {

// Emulates tdpbf16ps (Intel's manual, volume 2): one chain of fused multiply-adds over the even k
// and one over the odd k, both starting from zero. The sum of the two chains is added to C.
// Subnormal inputs and results are flushed to zero.
STRETTO_CLONES void tile_product(float* c, const uint16_t* a, const uint16_t* b) {
  for (int row = 0; row < 16; ++row, a += 32, c += 16) {
    float even[16] = {}, odd[16] = {};
    for (int pair = 0; pair < 16; ++pair) {
      const float x0 = std::bit_cast<float>(uint32_t(a[2 * pair]) << 16);
      const float x1 = std::bit_cast<float>(uint32_t(a[2 * pair + 1]) << 16);
      for (int j = 0; j < 16; ++j) {
        uint32_t of_b;
        std::memcpy(&of_b, b + pair * 32 + 2 * j, sizeof of_b);
        even[j] = std::fma(x0, std::bit_cast<float>(of_b << 16), even[j]);
        odd[j] = std::fma(x1, std::bit_cast<float>(of_b & 0xffff0000u), odd[j]);
      }
    }
    for (int j = 0; j < 16; ++j) c[j] += even[j] + odd[j];
  }
}

struct Emulated {
  float c[4][256];
  const uint16_t* operands[4];  // the operands in tile registers 4 to 7
#if defined(__x86_64__)
  // Flush to zero and denormals are zero: tile products always work this way.
  const unsigned control = _mm_getcsr();
  Emulated() { _mm_setcsr(control | 0x8040u); }
  ~Emulated() { _mm_setcsr(control); }
#elif defined(__aarch64__)
  uint64_t control;  // the register FPCR; bit 24 flushes subnormal inputs and results
  static void set(uint64_t value) { __asm__ volatile("msr fpcr, %0" ::"r"(value) : "memory"); }
  Emulated() {
    __asm__ volatile("mrs %0, fpcr" : "=r"(control));
    set(control | 1u << 24);
  }
  ~Emulated() { set(control); }
#endif

  template <int tile>
  void zero() {
    std::memset(c[tile], 0, sizeof c[tile]);
  }
  template <int tile>
  void load(const void* from, int64_t stride) {
    if constexpr (tile >= 4)
      operands[tile - 4] = static_cast<const uint16_t*>(from);
    else
      for (int i = 0; i < 16; ++i)
        std::memcpy(c[tile] + 16 * i, static_cast<const char*>(from) + i * stride, 64);
  }
  template <int to, int left, int right>
  void product() {
    tile_product(c[to], operands[left - 4], operands[right - 4]);
  }
  template <int tile>
  void store(float* to, int64_t stride) const {
    for (int i = 0; i < 16; ++i)
      std::memcpy(reinterpret_cast<char*>(to) + i * stride, c[tile] + 16 * i, 64);
  }
};

// Rounds like vcvtne2ps2bf16: to nearest even, with subnormals flushed to zero and NaN preserved.
uint16_t rounded(float x) {
  const uint32_t bits = std::bit_cast<uint32_t>(x);
  if ((bits & 0x7f800000u) == 0) return uint16_t(bits >> 16 & 0x8000u);
  return BFloat16(x).bits;
}

// Returns the next bf16 term of x and subtracts it from x.
template <class T>
uint16_t next_term(T& x) {
  if constexpr (std::is_same_v<T, BFloat16>) {
    return x.bits;
  } else {
    const uint16_t term = rounded(x);
    x -= std::bit_cast<float>(uint32_t(term) << 16);
    return term;
  }
}

void nothing() {}

}  // namespace

template <class T>
void pack_tiles_portable(const MatrixRef<T>& x, bool of_b, int64_t outer, int64_t k, int terms,
                         uint16_t* tiles) {
  for (int64_t o = 0; o < outer; o += tile_side)
    for (int64_t p = 0; p < k; p += tile_k, tiles += terms * tile_size)
      for (int64_t i = 0; i < tile_side; ++i)
        for (int64_t q = 0; q < tile_k; ++q) {
          T value = T(0.0f);
          if (x.data && o + i < outer && p + q < k) value = *x.from(o + i, p + q).data;
          const int64_t at = of_b ? q / 2 * tile_k + 2 * i + q % 2 : i * tile_k + q;
          for (int t = 0; t < terms; ++t) tiles[t * tile_size + at] = next_term(value);
        }
}
template void pack_tiles_portable(const MatrixRef<float>&, bool, int64_t, int64_t, int, uint16_t*);
template void pack_tiles_portable(const MatrixRef<BFloat16>&, bool, int64_t, int64_t, int,
                                  uint16_t*);

const TileKernels& tiles_emulated() {
  static constexpr TileKernels kernels{pack_tiles_portable<float>, pack_tiles_portable<BFloat16>,
                                       multiply_tiles<Emulated>, nothing, nothing};
  return kernels;
}

}  // namespace stretto::kernels
