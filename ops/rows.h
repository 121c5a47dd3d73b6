// Reductions of one contiguous row, in fixed lanes: vector instructions on every processor, and the
// same bits on all of them. Internal to ops/; inlined into STRETTO_CLONES kernels.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <limits>
#include <type_traits>

namespace stretto::rows {

inline constexpr int lanes = 16;

/// Σ of the lanes, by halves.
template <class C>
[[gnu::always_inline]] inline C add_up(C* acc) {
  for (int width = lanes / 2; width > 0; width /= 2)
    for (int j = 0; j < width; ++j) acc[j] += acc[j + width];
  return acc[0];
}

/// Σ f(i) for i in [0, n), each called once: four sums side by side, as an addition takes longer
/// than what lies between two of them.
template <class C, class F>
[[gnu::always_inline]] inline C sum(int64_t n, F f) {
  C a[lanes] = {}, b[lanes] = {}, c[lanes] = {}, d[lanes] = {};
  int64_t i = 0;
  for (; i + 4 * lanes <= n; i += 4 * lanes) {
    for (int j = 0; j < lanes; ++j) a[j] += f(i + j);
    for (int j = 0; j < lanes; ++j) b[j] += f(i + lanes + j);
    for (int j = 0; j < lanes; ++j) c[j] += f(i + 2 * lanes + j);
    for (int j = 0; j < lanes; ++j) d[j] += f(i + 3 * lanes + j);
  }
  for (int j = 0; j < lanes; ++j) a[j] = (a[j] + b[j]) + (c[j] + d[j]);
  for (; i + lanes <= n; i += lanes)
    for (int j = 0; j < lanes; ++j) a[j] += f(i + j);
  for (int j = 0; i < n; ++i, ++j) a[j] += f(i);
  return add_up(a);
}

template <class C>
struct Two {
  C first, second;
};

/// Σ f(i) and Σ g(i), in one pass over what both read.
template <class C, class F, class G>
[[gnu::always_inline]] inline Two<C> two_sums(int64_t n, F f, G g) {
  C a[lanes] = {}, b[lanes] = {}, c[lanes] = {}, d[lanes] = {};
  int64_t i = 0;
  for (; i + 2 * lanes <= n; i += 2 * lanes) {
    for (int j = 0; j < lanes; ++j) a[j] += f(i + j);
    for (int j = 0; j < lanes; ++j) b[j] += g(i + j);
    for (int j = 0; j < lanes; ++j) c[j] += f(i + lanes + j);
    for (int j = 0; j < lanes; ++j) d[j] += g(i + lanes + j);
  }
  for (int j = 0; j < lanes; ++j) a[j] += c[j];
  for (int j = 0; j < lanes; ++j) b[j] += d[j];
  for (int j = 0; i < n; ++i, j = (j + 1) % lanes) {
    a[j] += f(i);
    b[j] += g(i);
  }
  return {add_up(a), add_up(b)};
}

/// The largest f(i); −∞ for n = 0. A NaN makes the result NaN or is skipped, by its sign. Compared
/// as integers, for which the compiler has vector instructions: floats that are not negative have
/// the order of their bits, and negative ones the opposite one.
template <class C, class F>
[[gnu::always_inline]] inline C max(int64_t n, F f) {
  using Int = std::conditional_t<sizeof(C) == 4, int32_t, int64_t>;
  using Bits = std::make_unsigned_t<Int>;
  constexpr C least = -std::numeric_limits<C>::infinity();
  Int top = std::bit_cast<Int>(least);     // the largest, where one is not negative
  Bits near = std::bit_cast<Bits>(least);  // else the nearest to 0
  for (int64_t i = 0; i < n; ++i) {
    const Int bits = std::bit_cast<Int>(f(i));
    top = std::max(top, bits);
    near = std::min(near, Bits(bits));
  }
  return top >= 0 ? std::bit_cast<C>(top) : std::bit_cast<C>(near);
}

/// f(begin, end) on blocks of [0, n), while the next row of what is read, one or two operands, is
/// on its way: a row that is gone through twice would else come from memory in every other pass.
template <class T, class F>
[[gnu::always_inline]] inline void fetching_next(int64_t n, const T* next, const T* next_too, F f) {
  constexpr int64_t block = 4096 / sizeof(T), line = 64 / sizeof(T);
  for (int64_t begin = 0; begin < n; begin += block) {
    const int64_t end = std::min(n, begin + block);
    for (int64_t i = begin; i < end; i += line) __builtin_prefetch(next + i);
    if (next_too)
      for (int64_t i = begin; i < end; i += line) __builtin_prefetch(next_too + i);
    f(begin, end);
  }
}

}  // namespace stretto::rows
