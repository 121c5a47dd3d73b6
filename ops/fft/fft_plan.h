// Plans of the Fourier transforms of ops/fft: one plan per length, run on several sequences at
// once. Internal to ops/.
//
// Element j of sequence l is at j·lanes + l, with real and imaginary parts in separate planes. One
// vector instruction therefore does the same step for many sequences, without shuffles. The
// arithmetic on a sequence does not depend on the other lanes, so results do not depend on the
// grouping of sequences.
//
// Reference: tests/reference/fft.cpp, dft()
#pragma once

#include <algorithm>
#include <memory>
#include <vector>

#include "../../core/formulas/fft_butterfly.h"
#include "../../core/tensor.h"

namespace stretto {

/// cos(2πk/n) and sin(2πk/n), rounded once; exact if they are 0 or ±1.
struct Unit {
  double cos, sin;
};
Unit unit_root(int64_t k, int64_t n);

/// The most bytes of cached plans. The most recently used plans are cached; a single plan may
/// be larger. memory_stats() does not count cached plans, so that an op's memory does not
/// depend on earlier calls.
inline constexpr int64_t most_fft_plan_bytes = 32 << 20;
/// Returns the bytes of the cached plans. A plan that several other plans use is counted once for
/// each of them.
int64_t kept_fft_plan_bytes();

/// The plan of a complex transform of length n: y_k = Σ_j x_j e^(−2πi jk/n).
///
/// Lengths with only the prime factors 2, 3, 5 and 7 use Stockham's self-sorting passes of radix 8,
/// 4, 2, 3, 5 and 7. Any other length n is computed as a convolution with a chirp (Bluestein 1970),
/// whose length is the next power of two ≥ 2n − 1.
///
/// Bounds of the rounding error ‖ŷ − y‖₂ / ‖y‖₂, with unit roundoff u. A pass of radix R adds at
/// most η_R. A complex sum adds u, a product with a rounded twiddle 2√2 u + u (Higham, "Accuracy
/// and Stability of Numerical Algorithms", 2nd ed., lemma 3.5 and §24.1): η_2 < 4.9 u, η_4 < 5.9 u,
/// and η_8 < 9.9 u with the products by √½. Radices 3, 5 and 7 sum their products directly, at most
/// k = 4, 6, 7 roundings deep, so each part of an output has an error of at most k u Σ|x| ≤
/// k u √R ‖x‖; with the twiddle, η_R < (√2R k + 3.9) u: η_3 < 13.8 u, η_5 < 22.9 u, η_7 < 30.2 u.
/// All are below 11 u log2 R, hence
///     smooth n:  11 log2(n) u.
/// Bluestein's method uses two transforms of length M < 4n, the spectrum of the chirp (itself such
/// a transform), and four products. The entries of the spectrum are Fresnel sums below 2√n, so
/// errors grow at most twice as much as the result: 2 (33 log2(M) + 16) u, and as n ≥ 11
///     other n:  72 log2(4n) u.
template <class T>
class FftPlan {
 public:
  /// Returns the cached or a new plan of length n ≥ 1. Thread-safe.
  static std::shared_ptr<const FftPlan> of(int64_t n);
  explicit FftPlan(int64_t n);
  /// Returns the bytes of the tables of this plan and of the plans that it uses.
  int64_t bytes() const;

  /// Returns the size that each plane needs per lane, at least n.
  int64_t room() const { return chirp_length_ > 0 ? chirp_length_ : n_; }

  /// Transforms x. The result is in x or in `other`, whichever is returned; the other
  /// one is overwritten.
  Planes<T> forward(Planes<T> x, Planes<T> other, int64_t lanes) const;
  Planes<T> inverse(Planes<T> x, Planes<T> other, int64_t lanes) const {
    return forward(x.swapped(), other.swapped(), lanes).swapped();
  }

 private:
  struct Pass {
    int radix;
    int64_t m, stride;        // the pass transforms `stride` interleaved sequences of radix·m
    std::vector<T> twiddles;  // e^(−2πi jp/(radix·m)), [p][j = 1 … radix − 1][re, im]
  };
  Planes<T> through_chirp(Planes<T> x, Planes<T> other, int64_t lanes) const;

  int64_t n_;
  std::vector<Pass> passes_;
  int64_t chirp_length_ = 0;  // 0: no chirp needed
  std::shared_ptr<const FftPlan> chirp_plan_;
  std::vector<T> chirp_, chirp_spectrum_;  // [.., 2]
};

/// Factors of the bins of a real transform: `edge` for bins 0 and n/2, which are in the full
/// spectrum once, `middle` for the others, which also represent their conjugates.
struct BinScale {
  double edge = 1, middle = 1;
};

/// The plan of a real transform of length n with bins X_k, k ≤ n/2. An even n uses one complex
/// transform of n/2, in which samples 2j and 2j + 1 are the real and imaginary parts of element j.
///     forward:  X_k = s_k Σ_j x_j e^(−2πi jk/n)
///     inverse:  x_j = Σ_k s_k Re(X_k e^(2πi jk/n))        its transpose, for the same s
/// The imaginary parts of bins 0 and n/2 are written as 0 and not read.
template <class T>
class RealFftPlan {
 public:
  static std::shared_ptr<const RealFftPlan> of(int64_t n);
  explicit RealFftPlan(int64_t n);
  int64_t bytes() const;

  int64_t bins() const { return n_ / 2 + 1; }
  /// Returns the number of elements of the samples in planes (load_rows, store_rows):
  /// interleaved if packed.
  int64_t elements() const { return packed() ? n_ / 2 : n_; }
  int64_t room() const { return std::max(complex_->room(), bins()); }
  bool packed() const { return n_ % 2 == 0; }

  Planes<T> forward(Planes<T> x, Planes<T> other, int64_t lanes, BinScale scale) const;
  Planes<T> inverse(Planes<T> x, Planes<T> other, int64_t lanes, BinScale scale) const;

 private:
  int64_t n_;
  std::shared_ptr<const FftPlan<T>> complex_;
  std::vector<T> twiddles_;  // e^(−2πi k/n), k ≤ n/4, [.., 2]
};

/// Returns the number of sequences to transform at once: full vectors, if four planes
/// fit in the cache.
template <class T>
int64_t fft_lanes(int64_t room) {
  int64_t lanes = 64 / int64_t(sizeof(T));
  while (lanes > 1 && 4 * room * lanes * int64_t(sizeof(T)) > (5 << 18)) lanes /= 2;
  return lanes;
}
inline constexpr int64_t most_fft_lanes = 16;

/// Copies `count` values of each row to the planes. If interleaved, value i goes to element i/2, to
/// the real part for even i, to the imaginary part for odd i (the last one is 0 if count is odd).
/// Otherwise values go to the real parts, and imaginary parts are 0. Elements from the last value
/// to `room` are set to 0.
template <class T>
void load_rows(const T* const* rows, int64_t count, bool interleaved, Planes<T> to, int64_t lanes,
               int64_t room);

/// Copies values first … first + count − 1 of the planes to rows, multiplied by `scale`.
template <class T>
void store_rows(Planes<T> from, int64_t first, int64_t count, bool interleaved, T* const* rows,
                int64_t lanes, T scale = 1);

/// Pairs of planes in memory of the caching allocator.
template <class T>
class FftWorkspace {
 public:
  FftWorkspace(int64_t pairs, int64_t plane)
      : plane_((plane + 15) / 16 * 16 + 16),
        memory_(empty({2 * pairs * plane_}, {.dtype = dtype_of<T>(), .device = cpu})) {}
  Planes<T> operator[](int64_t pair) const {
    T* at = memory_.template data<T>() + 2 * pair * plane_;
    return {at, at + plane_};
  }

 private:
  int64_t plane_;  // padded by 16 elements, so that planes do not share cache sets
  Tensor memory_;
};

}  // namespace stretto
