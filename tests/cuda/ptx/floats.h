// Floating-point numbers as on the GPU: bf16 and tf32, flushed denormals, rounding modes.
#pragma once

#include <bit>
#include <cfenv>
#include <cmath>

#include "warp.h"

namespace interpreter {

inline float from_bf16(u16 bits) { return std::bit_cast<float>(u32(bits) << 16); }
/// Rounds to nearest even; a NaN becomes the canonical one, as with cvt.rn.bf16.f32.
inline u16 to_bf16(float x) {
  const u32 u = std::bit_cast<u32>(x);
  const u16 rounded = u16((u + 0x7fffu + ((u >> 16) & 1u)) >> 16);
  return (u & 0x7fffffffu) > 0x7f800000u ? u16(0x7fff) : rounded;
}

template <class T>
inline T flushed(T x) {
  return std::abs(x) < std::numeric_limits<T>::min() ? std::copysign(T(0), x) : x;
}

/// The rounding modes of PTX.
enum class Round : u8 { nearest, zero, down, up };

/// Calls f() in a rounding mode; loads and stores in f are not moved out.
template <Round mode, class F>
[[gnu::always_inline]] inline void rounded(F&& f) {
  if constexpr (mode == Round::nearest) {
    f();
  } else {
    constexpr int modes[] = {FE_TONEAREST, FE_TOWARDZERO, FE_DOWNWARD, FE_UPWARD};
    std::fesetround(modes[int(mode)]);
    asm volatile("" ::: "memory");
    f();
    asm volatile("" ::: "memory");
    std::fesetround(FE_TONEAREST);
  }
}

}  // namespace interpreter
