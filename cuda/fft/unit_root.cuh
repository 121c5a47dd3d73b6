// Roots of unity on the device, in f64.
#pragma once

#include "core/formulas/fft_butterfly.h"

namespace stretto::cuda {

/// cos and sin of x, |x| ≤ π/4, by Taylor series whose first omitted terms are below 2^−60.
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

/// e^(−2πi k/n), 0 ≤ k < n, as unit_root() of ops/fft/fft_plan.h.
__device__ inline void unit_root_of(int64_t k, int64_t n, double& cosine, double& sine) {
  int64_t x = 8 * k;
  const bool below = x > 4 * n;
  if (below) x = 8 * n - x;
  unit_root_by_octant(x, n, cosine, sine, [n](int64_t eighths, double& c, double& s) {
    series(double(eighths) * 0.78539816339744830962 / double(n), c, s);
  });
  if (!below) sine = -sine;
}

/// cos and sin of 2π · turns, |turns| ≤ ½, in the same way.
__device__ inline void wave_of(double turns, double& cosine, double& sine) {
  unit_root_by_octant(fabs(turns), 0.125, cosine, sine, [](double x, double& c, double& s) {
    series(x * 6.28318530717958647693, c, s);
  });
  if (turns < 0) sine = -sine;
}

}  // namespace stretto::cuda
