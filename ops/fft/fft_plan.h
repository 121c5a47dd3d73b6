// How the Fourier transforms of ops/fft and ops/fft_conv are computed: a plan per length, run on
// several sequences at once. Internal to ops/.
//
// Element j of sequence l lies at j·lanes + l, real and imaginary parts apart, so that one
// instruction does the same step for many sequences and none shuffles. The arithmetic on a sequence
// is the same whatever its neighbours: results do not depend on how sequences are grouped.
//
// Reference: tests/reference/fft.cpp, dft()
#pragma once

#include <algorithm>
#include <memory>
#include <vector>

#include "../../core/math.h"
#include "../../core/tensor.h"

namespace stretto {

/// Real and imaginary parts of `lanes` sequences.
template <class T>
struct Planes {
  T* re = nullptr;
  T* im = nullptr;

  /// With the parts exchanged a forward transform is an inverse one, without its 1/n.
  STRETTO_HD Planes swapped() const { return {im, re}; }
  STRETTO_HD Planes at(int64_t i) const { return {re + i, im + i}; }
};

/// cos(2πk/n) and sin(2πk/n), rounded once; exact where they are 0 or ±1.
struct Unit {
  double cos, sin;
};
Unit unit_root(int64_t k, int64_t n);

/// The radices of the passes for n, or none where it has a prime factor above 7. As many 8s as 2s
/// allow, without leaving a 2 alone where 4·4 does the same.
std::vector<int> fft_radices(int64_t n);

/// Plans asked for are kept for the next calls, those asked for last and at most so many bytes of
/// them, or one alone that is larger. memory_stats() does not count them: an op's memory is that of
/// its tensors, whatever was asked for before.
inline constexpr int64_t most_fft_plan_bytes = 32 << 20;
/// Of the plans that are kept; what several of them hold is counted with each.
int64_t kept_fft_plan_bytes();

/// y_k = Σ_j x_j e^(−2πi jk/n).
///
/// Lengths whose prime factors are 2, 3, 5 and 7 take Stockham's self-sorting passes of radix 8, 4,
/// 2, 3, 5 and 7. Any other length n is a convolution with a chirp (Bluestein 1970), of the next
/// power of two from 2n − 1 on.
///
/// Rounding error, in the norm ‖ŷ − y‖₂ / ‖y‖₂ and the unit roundoff u: a pass of radix R adds at
/// most η_R. A complex sum adds u, a product with a rounded twiddle 2√2 u + u (Higham, "Accuracy
/// and Stability of Numerical Algorithms", 2nd ed., lemma 3.5 and §24.1): η_2 < 4.9 u, η_4 < 5.9 u,
/// and η_8 < 9.9 u with the products by √½. Radix 3, 5 and 7 sum their products directly, at most
/// k = 4, 6, 7 roundings deep, so that each part of an output is off by k u Σ|x| ≤ k u √R ‖x‖;
/// with the twiddle η_R < (√2R k + 3.9) u: η_3 < 13.8 u, η_5 < 22.9 u, η_7 < 30.2 u. Every one of
/// them is below 11 u log2 R, hence
///     smooth n:  11 log2(n) u.
/// Bluestein's method takes two transforms of M < 4n, the chirp's spectrum, itself such a
/// transform, and four products. The spectrum's entries are Fresnel sums below 2√n, so errors grow
/// at most twice as much as the result does: 2 (33 log2(M) + 16) u, and as n ≥ 11
///     other n:  72 log2(4n) u.
template <class T>
class FftPlan {
 public:
  /// The plan of this length, n ≥ 1, from any thread. It stays while somebody holds it.
  static std::shared_ptr<const FftPlan> of(int64_t n);
  explicit FftPlan(int64_t n);
  /// Of its tables, and of the plans it holds.
  int64_t bytes() const;

  /// Elements that each plane must have room for: at least n.
  int64_t room() const { return chirp_length_ > 0 ? chirp_length_ : n_; }

  /// Transforms x; the result is in x or in `other`, as returned, and the rest of both is spoilt.
  Planes<T> forward(Planes<T> x, Planes<T> other, int64_t lanes) const;
  Planes<T> inverse(Planes<T> x, Planes<T> other, int64_t lanes) const {
    return forward(x.swapped(), other.swapped(), lanes).swapped();
  }

 private:
  struct Pass {
    int radix;
    int64_t m, stride;        // this pass sees `stride` interleaved sequences of radix·m
    std::vector<T> twiddles;  // e^(−2πi jp/(radix·m)), [p][j = 1 … radix − 1][re, im]
  };
  Planes<T> through_chirp(Planes<T> x, Planes<T> other, int64_t lanes) const;

  int64_t n_;
  std::vector<Pass> passes_;
  int64_t chirp_length_ = 0;  // 0: no chirp needed
  std::shared_ptr<const FftPlan> chirp_plan_;
  std::vector<T> chirp_, chirp_spectrum_;  // [.., 2]
};

/// The factors that the bins of a real transform are multiplied by. Bins 0 and n/2 stand once in
/// the full spectrum, those between stand for themselves and for their conjugate.
struct BinScale {
  double edge = 1, middle = 1;
};

/// Real sequences x of n and their bins X_k, k ≤ n/2. An even n takes one complex transform of n/2:
/// samples 2j and 2j + 1 are the real and imaginary part of element j.
///     forward:  X_k = s_k Σ_j x_j e^(−2πi jk/n)
///     inverse:  x_j = Σ_k s_k Re(X_k e^(2πi jk/n))        its transpose, for the same s
/// Imaginary parts of bins 0 and n/2 come out as 0 and are not read.
template <class T>
class RealFftPlan {
 public:
  static std::shared_ptr<const RealFftPlan> of(int64_t n);
  explicit RealFftPlan(int64_t n);
  int64_t bytes() const;

  int64_t bins() const { return n_ / 2 + 1; }
  /// Elements that the samples take, as load_rows and store_rows lay them: interleaved if packed.
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

/// How many sequences of this room to take at once: vectors full, and four planes in the cache.
template <class T>
int64_t fft_lanes(int64_t room) {
  int64_t lanes = 64 / int64_t(sizeof(T));
  while (lanes > 1 && 4 * room * lanes * int64_t(sizeof(T)) > (5 << 18)) lanes /= 2;
  return lanes;
}
inline constexpr int64_t most_fft_lanes = 16;

/// `count` numbers of each row to the planes. Interleaved: number i to element i/2, even ones to
/// the real part, odd ones to the imaginary part (0 where count is odd). Else all to the real part,
/// and 0 to the imaginary part. Elements after the last one and before `room` become 0.
template <class T>
void load_rows(const T* const* rows, int64_t count, bool interleaved, Planes<T> to, int64_t lanes,
               int64_t room);

/// Numbers first … first + count − 1 of the planes to rows, multiplied by `scale`.
template <class T>
void store_rows(Planes<T> from, int64_t first, int64_t count, bool interleaved, T* const* rows,
                int64_t lanes, T scale = 1);

/// Two pairs of planes, or more, in the caching allocator's memory.
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
  int64_t plane_;  // sixteen numbers longer than asked for: planes must not share cache sets
  Tensor memory_;
};

}  // namespace stretto
