// Reductions of one contiguous row in a fixed number of lanes, inlined into STRETTO_CLONES kernels,
// and loops over a row: vectorized on every processor, and bit-identical on all of them. Internal to
// ops/.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "../core/dtype.h"
#include "../core/math.h"

namespace stretto::rows {

inline constexpr int lanes = 16;

/// Returns the sum of the lanes, by repeated halving.
template <class C>
[[gnu::always_inline]] inline C add_up(C* acc) {
  for (int width = lanes / 2; width > 0; width /= 2)
    for (int j = 0; j < width; ++j) acc[j] += acc[j + width];
  return acc[0];
}

/// Returns Σ f(i) for i in [0, n); each f(i) is evaluated once. Four independent sums hide the
/// latency of additions.
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

/// Returns the largest f(i), or −∞ for n = 0. A NaN makes the result NaN or is skipped, depending
/// on its sign. Values are compared as integers, which compilers vectorize: nonnegative floats are
/// ordered as their bits, negative ones in the opposite order.
template <class C, class F>
[[gnu::always_inline]] inline C max(int64_t n, F f) {
  using Int = std::conditional_t<sizeof(C) == 4, int32_t, int64_t>;
  using Bits = std::make_unsigned_t<Int>;
  constexpr C least = -std::numeric_limits<C>::infinity();
  Int top = std::bit_cast<Int>(least);     // the largest value, if any value is nonnegative
  Bits near = std::bit_cast<Bits>(least);  // else the value closest to 0
  for (int64_t i = 0; i < n; ++i) {
    const Int bits = std::bit_cast<Int>(f(i));
    top = std::max(top, bits);
    near = std::min(near, Bits(bits));
  }
  return top >= 0 ? std::bit_cast<C>(top) : std::bit_cast<C>(near);
}

/// Returns the end of the block of [0, n) that begins at `begin`, and prefetches the same block of
/// the next row, of one or two operands. Without the prefetch, memory is idle during the second
/// loop over a row, and the first loop over the next row waits for memory.
///
///     for (int64_t begin = 0, end; begin < n; begin = end) {
///       end = rows::fetch_next(n, begin, x + n);
///       for (int64_t i = begin; i < end; ++i) y[i] = ...;
///     }
template <class T>
[[gnu::always_inline]] inline int64_t fetch_next(int64_t n, int64_t begin, const T* next,
                                                 const T* next_too = nullptr) {
  constexpr int64_t block = 4096 / sizeof(T), line = 64 / sizeof(T);
  const int64_t end = std::min(n, begin + block);
  for (int64_t i = begin; i < end; i += line) __builtin_prefetch(next + i);
  if (next_too)
    for (int64_t i = begin; i < end; i += line) __builtin_prefetch(next_too + i);
  return end;
}

/// Returns the shift that softmax subtracts from a row: its largest f(i), or 0 for a row of only
/// −∞, whose exponentials are all 0.
template <class C, class F>
[[gnu::always_inline]] inline C softmax_shift(int64_t n, F f) {
  const C top = max<C>(n, f);
  return top == -std::numeric_limits<C>::infinity() ? C(0) : top;
}

/// Returns the factor of a row's exponentials in softmax, for their sum `total`.
template <class C>
[[gnu::always_inline]] inline C softmax_scale(C total) {
  return total == C(0) ? C(0) : C(1) / total;
}

/// Returns Σ e^(x_i − top), for top ≥ all x_i.
template <class T, class C = compute_t<T>>
[[gnu::always_inline]] inline C sum_of_powers(const T* x, int64_t n, C top) {
  C total = 0;
  for (int64_t begin = 0, end; begin < n; begin = end) {
    end = fetch_next(n, begin, x + n);
    total +=
        sum<C>(end - begin, [&](int64_t i) { return math::exp_negative(C(x[begin + i]) - top); });
  }
  return total;
}

/// Converts a row to another dtype.
template <class From, class To>
STRETTO_CLONES void convert_row(const From* from, To* to, int64_t n) {
  if constexpr (std::is_same_v<From, To>)
    std::copy_n(from, n, to);
  else
    for (int64_t i = 0; i < n; ++i) to[i] = To(compute_t<From>(from[i]));
}
/// Computes to = factor · x.
template <class T>
STRETTO_CLONES void scale_row(const T* x, T factor, T* to, int64_t n) {
  for (int64_t i = 0; i < n; ++i) to[i] = factor * x[i];
}
/// Computes to += factor · x.
template <class S, class T>
STRETTO_CLONES void add_scaled(const S* x, T factor, T* to, int64_t n) {
  for (int64_t i = 0; i < n; ++i) to[i] += factor * T(x[i]);
}

}  // namespace stretto::rows
