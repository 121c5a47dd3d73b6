// Reductions of one contiguous row, in 16 fixed lanes: vector instructions on every processor, and
// the same bits on all of them. Internal to ops/; inlined into STRETTO_CLONES kernels.
#pragma once

#include <bit>
#include <cstdint>
#include <limits>
#include <type_traits>

namespace stretto::rows {

inline constexpr int lanes = 16;

/// Σ f(i) for i in [0, n).
template <class C, class F>
[[gnu::always_inline]] inline C sum(int64_t n, F f) {
  C acc[lanes] = {};
  int64_t i = 0;
  for (; i + lanes <= n; i += lanes)
    for (int j = 0; j < lanes; ++j) acc[j] += f(i + j);
  for (int j = 0; i < n; ++i, ++j) acc[j] += f(i);
  for (int width = lanes / 2; width > 0; width /= 2)
    for (int j = 0; j < width; ++j) acc[j] += acc[j + width];
  return acc[0];
}

/// The largest f(i); −∞ for n = 0. A NaN makes the result NaN or is skipped, by its sign. Compared
/// as integers, whose maximum the compiler turns into vector instructions: the bits of a float,
/// with those of a negative one inverted, have the order of the floats.
template <class C, class F>
[[gnu::always_inline]] inline C max(int64_t n, F f) {
  using Int = std::conditional_t<sizeof(C) == 4, int32_t, int64_t>;
  constexpr Int magnitude = std::numeric_limits<Int>::max();
  auto key = [](Int bits) { return bits ^ ((bits >> (8 * sizeof(C) - 1)) & magnitude); };
  Int top = key(std::bit_cast<Int>(-std::numeric_limits<C>::infinity()));
  for (int64_t i = 0; i < n; ++i) {
    const Int k = key(std::bit_cast<Int>(f(i)));
    top = k > top ? k : top;
  }
  return std::bit_cast<C>(key(top));
}

}  // namespace stretto::rows
