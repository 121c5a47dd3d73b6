// Unit roots on the device, in f64.
#pragma once

#include <cstdint>

namespace stretto::cuda {

/// cos and sin of x, |x| ≤ π/4, by Taylor's series, their first missing terms below 2^−60.
__device__ inline void series(double x, double& cosine, double& sine) {
  const double z = x * x;
  double c = 1, s = 1;
#pragma unroll
  for (int i = 9; i > 0; --i) {
    c = 1 - z * (1.0 / ((2 * i - 1) * (2 * i))) * c;
    s = 1 - z * (1.0 / ((2 * i) * (2 * i + 1))) * s;
  }
  cosine = c;
  sine = s * x;
}

/// e^(−2πi k/n), as unit_root() of ops/fft/fft_plan.h: mirrored into the first octant.
__device__ inline void unit_root_of(int64_t k, int64_t n, double& cosine, double& sine) {
  int64_t x = 8 * k;
  const bool below = x > 4 * n;
  if (below) x = 8 * n - x;
  const bool left = x > 2 * n;
  if (left) x = 4 * n - x;
  const bool steep = x > n;
  if (steep) x = 2 * n - x;
  double c, s;
  series(double(x) * 0.78539816339744830962 / double(n), c, s);
  cosine = steep ? s : c;
  sine = steep ? c : s;
  if (left) cosine = -cosine;
  if (!below) sine = -sine;
}

/// cos and sin of so many turns, |turns| ≤ ½: the same in f64.
__device__ inline void wave_of(double turns, double& cosine, double& sine) {
  double x = fabs(turns);
  const bool left = x > 0.25;
  if (left) x = 0.5 - x;
  const bool steep = x > 0.125;
  if (steep) x = 0.25 - x;
  double c, s;
  series(x * 6.28318530717958647693, c, s);
  cosine = steep ? s : c;
  sine = steep ? c : s;
  if (left) cosine = -cosine;
  if (turns < 0) sine = -sine;
}

}  // namespace stretto::cuda
