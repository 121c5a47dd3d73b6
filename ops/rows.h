// Reductions of one contiguous row, in 16 fixed lanes: vector instructions on every processor, and
// the same bits on all of them. Internal to ops/; inlined into STRETTO_CLONES kernels.
#pragma once

#include <cstdint>
#include <limits>

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

/// The largest f(i); −∞ for n = 0. NaN is skipped.
template <class C, class F>
[[gnu::always_inline]] inline C max(int64_t n, F f) {
  C acc[lanes];
  for (int j = 0; j < lanes; ++j) acc[j] = -std::numeric_limits<C>::infinity();
  int64_t i = 0;
  for (; i + lanes <= n; i += lanes)
    for (int j = 0; j < lanes; ++j) {
      const C v = f(i + j);
      acc[j] = v > acc[j] ? v : acc[j];
    }
  for (int j = 0; i < n; ++i, ++j) {
    const C v = f(i);
    acc[j] = v > acc[j] ? v : acc[j];
  }
  for (int j = 1; j < lanes; ++j) acc[0] = acc[j] > acc[0] ? acc[j] : acc[0];
  return acc[0];
}

}  // namespace stretto::rows
