// Dropout of consecutive elements on the CPU. Internal to ops/.
#pragma once

#include "../core/random.h"
#include "loops.h"

namespace stretto {

template <class T>
STRETTO_CLONES void drop_run(const T* x, const uint32_t* draws, T* y, int64_t n, uint32_t below,
                             compute_t<T> scale) {
  using C = compute_t<T>;
#pragma GCC ivdep
  for (int64_t i = 0; i < n; ++i) y[i] = T((draws[i] >> 8) < below ? C(0) : C(x[i]) * scale);
}

template <class T>
STRETTO_CLONES void drop_run_onto(const T* residual, const T* x, const uint32_t* draws, T* y,
                                  int64_t n, uint32_t below, compute_t<T> scale) {
  using C = compute_t<T>;
#pragma GCC ivdep
  for (int64_t i = 0; i < n; ++i)
    y[i] = T(C(residual[i]) + ((draws[i] >> 8) < below ? C(0) : C(x[i]) * scale));
}

struct Dropping : DropoutRule {
  Dropping(double p, RandomKey draws) : DropoutRule(p), key(draws) {}

  RandomKey key;

  /// Writes dropout(x) to y for elements first … first + n − 1 of a tensor, plus `residual` unless
  /// it is null; `first` is a multiple of 4. y may be x.
  template <class T>
  void run(const T* x, T* y, int64_t first, int64_t n, const T* residual = nullptr) const {
    constexpr int64_t chunk = 4096;
    uint32_t draws[chunk];
    for (int64_t at = 0; at < n; at += chunk) {
      const int64_t here = std::min(chunk, n - at);
      philox_blocks(key, uint64_t((first + at) / 4), (here + 3) / 4, draws);
      if (residual)
        drop_run_onto(residual + at, x + at, draws, y + at, here, below, compute_t<T>(factor));
      else
        drop_run(x + at, draws, y + at, here, below, compute_t<T>(factor));
    }
  }
};

}  // namespace stretto
