// Butterflies: the Fourier transforms of 2, 3, 4, 5, 7 and 8 elements from which longer ones are
// composed (ops/fft/fft_plan.h), and the symmetry of roots of unity. Code without branches that is
// inlined into STRETTO_CLONES loops and into the kernels of cuda/fft. Internal to ops/ and cuda/.
//
// Reference: tests/reference/fft.cpp, dft()
#pragma once

#include <type_traits>
#include <utility>
#include <vector>

#include "../math.h"

#define STRETTO_INLINE __attribute__((always_inline))

namespace stretto {

/// The planes of real and imaginary parts of `lanes` sequences.
template <class T>
struct Planes {
  T* re = nullptr;
  T* im = nullptr;

  /// Exchanges the parts: a forward transform of swapped planes is an inverse one, without its 1/n.
  STRETTO_HD Planes swapped() const { return {im, re}; }
  STRETTO_HD Planes at(int64_t i) const { return {re + i, im + i}; }
};

/// Returns the radices of the steps (passes) for n, or none if n has a prime factor above 7. Uses
/// radix 8 as often as possible, but 4·4 rather than 8·2.
inline std::vector<int> fft_radices(int64_t n) {
  std::vector<int> radices;
  int twos = 0;
  for (; n % 2 == 0; n /= 2) ++twos;
  if (twos == 1) radices.push_back(2);
  for (; twos > 4 || twos == 3; twos -= 3) radices.push_back(8);
  for (; twos > 1; twos -= 2) radices.push_back(4);
  for (int r : {3, 5, 7})
    for (; n % r == 0; n /= r) radices.push_back(r);
  if (n > 1) radices.clear();
  return radices;
}

// Calls f(0), …, f(N − 1) with constant arguments.
template <int N, class F>
STRETTO_HD STRETTO_INLINE inline void unroll(F f) {
  [&]<int... I>(std::integer_sequence<int, I...>) STRETTO_INLINE {
    (f(std::integral_constant<int, I>{}), ...);
  }
  (std::make_integer_sequence<int, N>{});
}

// cos and sin of 2πk/R, k ≤ R/2.
template <int R>
struct Roots;
template <>
struct Roots<3> {
  static constexpr double cos[] = {1, -0.5}, sin[] = {0, 0.86602540378443865};
};
template <>
struct Roots<5> {
  static constexpr double cos[] = {1, 0.30901699437494742, -0.80901699437494742};
  static constexpr double sin[] = {0, 0.95105651629515357, 0.58778525229247313};
};
template <>
struct Roots<7> {
  static constexpr double cos[] = {1, 0.62348980185873353, -0.22252093395631440,
                                   -0.90096886790241913};
  static constexpr double sin[] = {0, 0.78183148246802981, 0.97492791218182361,
                                   0.43388373911755812};
};

// cos and sin of an angle in [0, π], in units in which π/4 is `octant`. The angle is mirrored into
// the first octant, for which first(angle, cosine, sine) computes them.
template <class Angle, class First>
STRETTO_HD inline void unit_root_by_octant(Angle angle, Angle octant, double& cosine, double& sine,
                                           First first) {
  const bool left = angle > 2 * octant;
  if (left) angle = 4 * octant - angle;
  const bool steep = angle > octant;
  if (steep) angle = 2 * octant - angle;
  double c, s;
  first(angle, c, s);
  cosine = steep ? s : c;
  sine = steep ? c : s;
  if (left) cosine = -cosine;
}

// The DFT of R elements in place, for odd R: first sums and differences of the pairs (k, R − k).
template <int R, class T>
struct Butterfly {
  static STRETTO_HD STRETTO_INLINE inline void run(T* re, T* im) {
    constexpr int half = R / 2;
    T ar[half], ai[half], br[half], bi[half], yr[R], yi[R];
    unroll<half>([&](auto k) STRETTO_INLINE {
      ar[k] = re[k + 1] + re[R - 1 - k];
      ai[k] = im[k + 1] + im[R - 1 - k];
      br[k] = re[k + 1] - re[R - 1 - k];
      bi[k] = im[k + 1] - im[R - 1 - k];
    });
    yr[0] = re[0];
    yi[0] = im[0];
    unroll<half>([&](auto k) STRETTO_INLINE {
      yr[0] += ar[k];
      yi[0] += ai[k];
    });
    unroll<half>([&](auto i) STRETTO_INLINE {
      constexpr int j = i + 1;
      T ur = re[0], ui = im[0], vr = 0, vi = 0;
      unroll<half>([&](auto k) STRETTO_INLINE {
        constexpr int jk = j * (k + 1) % R;
        constexpr T c = T(Roots<R>::cos[jk > half ? R - jk : jk]);
        constexpr T s = T(jk > half ? -Roots<R>::sin[R - jk] : Roots<R>::sin[jk]);
        ur += c * ar[k];
        ui += c * ai[k];
        vr += s * br[k];
        vi += s * bi[k];
      });
      yr[j] = ur + vi;
      yi[j] = ui - vr;
      yr[R - j] = ur - vi;
      yi[R - j] = ui + vr;
    });
    unroll<R>([&](auto k) STRETTO_INLINE {
      re[k] = yr[k];
      im[k] = yi[k];
    });
  }
};

template <class T>
struct Butterfly<2, T> {
  static STRETTO_HD STRETTO_INLINE inline void run(T* re, T* im) {
    const T r = re[0] - re[1], i = im[0] - im[1];
    re[0] += re[1];
    im[0] += im[1];
    re[1] = r;
    im[1] = i;
  }
};

template <class T>
struct Butterfly<4, T> {
  static STRETTO_HD STRETTO_INLINE inline void run(T* re, T* im) {
    const T ar = re[0] + re[2], ai = im[0] + im[2], br = re[0] - re[2], bi = im[0] - im[2];
    const T cr = re[1] + re[3], ci = im[1] + im[3], dr = re[1] - re[3], di = im[1] - im[3];
    re[0] = ar + cr;
    im[0] = ai + ci;
    re[1] = br + di;
    im[1] = bi - dr;
    re[2] = ar - cr;
    im[2] = ai - ci;
    re[3] = br - di;
    im[3] = bi + dr;
  }
};

template <class T>
struct Butterfly<8, T> {
  static STRETTO_HD STRETTO_INLINE inline void run(T* re, T* im) {
    constexpr T h = T(0.70710678118654752);
    T er[4], ei[4], odd_r[4], odd_i[4];
    unroll<4>([&](auto k) STRETTO_INLINE {
      er[k] = re[2 * k];
      ei[k] = im[2 * k];
      odd_r[k] = re[2 * k + 1];
      odd_i[k] = im[2 * k + 1];
    });
    Butterfly<4, T>::run(er, ei);
    Butterfly<4, T>::run(odd_r, odd_i);
    const T tr[4] = {odd_r[0], h * (odd_r[1] + odd_i[1]), odd_i[2], h * (odd_i[3] - odd_r[3])};
    const T ti[4] = {odd_i[0], h * (odd_i[1] - odd_r[1]), -odd_r[2], -h * (odd_r[3] + odd_i[3])};
    unroll<4>([&](auto k) STRETTO_INLINE {
      re[k] = er[k] + tr[k];
      im[k] = ei[k] + ti[k];
      re[k + 4] = er[k] - tr[k];
      im[k + 4] = ei[k] - ti[k];
    });
  }
};

}  // namespace stretto
