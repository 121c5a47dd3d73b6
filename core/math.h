// Elementwise math: scalar functions without branches or calls, so that g++ vectorizes loops over
// them. They need no -ffast-math: NaN and infinity follow the IEEE rules. The loop belongs in a
// function marked STRETTO_CLONES, compiled with
//   -O3 -fno-math-errno -fno-trapping-math -ffp-contract=off -fno-thread-jumps
// (-fno-thread-jumps prevents g++ from turning selections into branches). All instruction sets then
// give bit-identical results. On the GPU these are CUDA's functions, except sin and cos, which
// would need local memory there.
//
// Each float function states its method and its largest error in ulp (units in the last place),
// measured over all 2^32 inputs against a double reference. NaN gives NaN everywhere. The double
// versions are those of the standard library: double is meant for gradient checks.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <type_traits>

#ifdef __CUDACC__
#define STRETTO_HD __host__ __device__
#else
#define STRETTO_HD
#endif

/// Attribute of a function (or function template): compiles it for x86-64-v4 (AVX-512), x86-64-v3
/// (AVX2) and baseline x86-64; the version is chosen when the program loads. Empty with clang, so
/// that loops get baseline x86-64 code, and with sanitizers, which do not support this choice.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && !defined(__CUDACC__) && \
    !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define STRETTO_CLONES __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#define STRETTO_HAS_CLONES
#else
#define STRETTO_CLONES
#endif

#if defined(__GNUC__) && !defined(__CUDACC__)
#define STRETTO_MATH_INLINE inline __attribute__((always_inline))
#else
#define STRETTO_MATH_INLINE STRETTO_HD inline
#endif

namespace stretto::math {

/// Returns a + b, a − b or a · b; integers wrap around, as in integer tensors.
template <class T>
STRETTO_MATH_INLINE constexpr T wrapping_add(T a, T b) {
  if constexpr (std::is_integral_v<T>)
    return T(std::make_unsigned_t<T>(a) + std::make_unsigned_t<T>(b));
  else
    return a + b;
}
template <class T>
STRETTO_MATH_INLINE constexpr T wrapping_sub(T a, T b) {
  if constexpr (std::is_integral_v<T>)
    return T(std::make_unsigned_t<T>(a) - std::make_unsigned_t<T>(b));
  else
    return a - b;
}
template <class T>
STRETTO_MATH_INLINE constexpr T wrapping_mul(T a, T b) {
  if constexpr (std::is_integral_v<T>)
    return T(std::make_unsigned_t<T>(a) * std::make_unsigned_t<T>(b));
  else
    return a * b;
}

STRETTO_MATH_INLINE float abs(float x) { return std::fabs(x); }
STRETTO_MATH_INLINE double abs(double x) { return std::fabs(x); }

STRETTO_MATH_INLINE float sqrt(float x) { return std::sqrt(x); }
STRETTO_MATH_INLINE double sqrt(double x) { return std::sqrt(x); }

namespace detail {

STRETTO_MATH_INLINE uint32_t bits(float x) { return std::bit_cast<uint32_t>(x); }
STRETTO_MATH_INLINE float from_bits(uint32_t x) { return std::bit_cast<float>(x); }

inline constexpr float kInfinity = std::bit_cast<float>(0x7F800000u);
inline constexpr float kNaN = std::bit_cast<float>(0x7FC00000u);

/// Returns `magnitude` ≥ 0 with the sign of `sign`, so that odd functions are exactly odd.
STRETTO_MATH_INLINE float with_sign(float magnitude, float sign) {
  return from_bits(bits(magnitude) | (bits(sign) & 0x80000000u));
}

/// Returns a·b + c, rounded once: one instruction in every clone, except that baseline x86-64 calls
/// the standard library. Without clones and FMA it is computed in double and may be rounded twice.
STRETTO_MATH_INLINE float fma(float a, float b, float c) {
#if defined(__CUDA_ARCH__)
  return ::fmaf(a, b, c);
#elif defined(STRETTO_HAS_CLONES) || defined(__FMA__) || defined(__ARM_FEATURE_FMA)
  return __builtin_fmaf(a, b, c);
#else
  return float(double(a) * double(b) + double(c));
#endif
}

/// Returns 1.5·2^23 + bias. Adding it to x rounds x to the nearest integer n and leaves n + bias in
/// the low bits; shifted left by 23 they are the exponent of a power of two.
STRETTO_MATH_INLINE constexpr float round_with(int bias) { return 12582912.0f + float(bias); }

/// Returns x − scale · n ln 2. ln 2 is split into two terms; the first has 15 bits, so that its
/// product with n is exact.
STRETTO_MATH_INLINE float less_ln2(float x, float n, float scale = 1.0f) {
  return fma(n, -1.42860677e-6f * scale, fma(n, -0.693145752f * scale, x));
}

/// Returns e^r for |r| <= ln 2 / 2.
STRETTO_MATH_INLINE float exp_reduced(float r) {
  float q = 0.00138698553f;
  q = fma(q, r, 0.00836644694f);
  q = fma(q, r, 0.0416674465f);
  q = fma(q, r, 0.16666545f);
  q = fma(q, r, 0.49999997f);
  q = fma(q, r, 1.0f);
  return fma(q, r, 1.0f);
}

/// Returns e^x for x <= 0 and NaN. The power of two is applied as two factors: 2^n may be out of
/// range although the result is not, and a subnormal result is rounded only once.
STRETTO_MATH_INLINE float exp_negative(float x) {
  constexpr float magic = round_with(127 + 64);
  x = x < -105.0f ? -105.0f : x;
  const float shifted = fma(x, 1.44269504f, magic);
  return exp_reduced(less_ln2(x, shifted - magic)) * from_bits(bits(shifted) << 23) * 0x1p-64f;
}

/// Returns k ln 2 + log(1 + f) for 1 + f in [sqrt(1/2), sqrt(2)] and an integer k.
STRETTO_MATH_INLINE float log1p_reduced(float f, float k) {
  const float z = f * f;
  const float even = ((0.127616554f * z + 0.142016634f) * z + 0.200012386f) * z + 0.333333313f;
  const float odd = ((0.0763516873f * z + 0.131597877f) * z + 0.166234031f) * z + 0.250008196f;
  const float p = even - f * odd;
  return k * 0.693145752f + (f + (z * (f * p - 0.5f) + k * 1.42860677e-6f));
}

/// Returns sin(r + quadrant·pi/2) for |r| <= pi/4.
STRETTO_MATH_INLINE float sin_reduced(float r, uint32_t quadrant) {
  const float r2 = r * r;
  const float s = r + r * r2 * ((-0.000195182845f * r2 + 0.00833218917f) * r2 - 0.166666552f);
  const float c =
      1.0f + r2 * (r2 * ((2.44325638e-5f * r2 - 0.00138873106f) * r2 + 0.0416666456f) - 0.5f);
  const float value = (quadrant & 1u) != 0 ? c : s;
  return from_bits(bits(value) ^ ((quadrant & 2u) << 30));
}

/// Returns sin(|x| + quarters·pi/2); the caller applies the sign of x. For |x| < 2^31 x is reduced
/// modulo pi/2 in double, with pi/2 split into three terms, the first two of 22 bits; this is exact
/// enough for every x. Returns NaN for larger |x|; there the ops sin and cos use the C++ library.
STRETTO_MATH_INLINE float sin_abs(float x, uint32_t quarters) {
  const float a = std::fabs(x);
  const double d = double(a);
  const double shifted = d * 0.6366197723675814 + 6755399441055744.0;
  const double n = shifted - 6755399441055744.0;
  const float r = float(((d - n * 0x1.921fb8p+0) + n * 0x1.5dde98p-23) - n * 0x1.8469898cc517p-48);
  const float value = sin_reduced(r, uint32_t(std::bit_cast<uint64_t>(shifted)) + quarters);
  return a < 2147483648.0f ? value : kNaN;
}

/// Returns sin(|x| + quarters·pi/2) for |x| >= 2^31, on the GPU (Payne & Hanek, 1983). Only 96
/// bits of 2/pi affect |x|·2/pi modulo 4: those starting at the bit whose product with the last
/// bit of x is 2. They are chosen by selections, because an indexed table would be in local
/// memory. NaN for infinities.
STRETTO_MATH_INLINE float sin_far(float x, uint32_t quarters) {
  const float a = std::fabs(x);
  const uint32_t at = (bits(a) >> 23) - 152u, skip = at & 31u, word = at >> 5;
  const auto pick = [word](uint32_t w0, uint32_t w1, uint32_t w2, uint32_t w3) {
    return word == 0u ? w0 : word == 1u ? w1 : word == 2u ? w2 : w3;
  };
  const uint32_t p0 = pick(0xA2F9836Eu, 0x4E441529u, 0xFC2757D1u, 0xF534DDC0u);
  const uint32_t p1 = pick(0x4E441529u, 0xFC2757D1u, 0xF534DDC0u, 0xDB629599u);
  const uint32_t p2 = pick(0xFC2757D1u, 0xF534DDC0u, 0xDB629599u, 0x3C439041u);
  const uint32_t p3 = pick(0xF534DDC0u, 0xDB629599u, 0x3C439041u, 0xFE5163ABu);
  const auto window = [skip](uint32_t high, uint32_t low) {
    return uint32_t(((uint64_t(high) << 32 | low) << skip) >> 32);
  };
  const uint64_t high = uint64_t(window(p0, p1)) << 32 | window(p1, p2);
  const uint64_t mantissa = (bits(a) & 0x7FFFFFu) | 0x800000u;
  const uint64_t turn = mantissa * high + (mantissa * window(p2, p3) >> 32);  // 2^64: four quarters
  const uint64_t nearest = (turn + (uint64_t(1) << 61)) >> 62;
  const double rest = double(int64_t(turn - (nearest << 62))) * 0x1.921fb54442d18p-62;
  const float value = sin_reduced(float(rest), uint32_t(nearest) + quarters);
  return a < kInfinity ? value : kNaN;
}

// Exponent and mantissa in [sqrt(1/2), sqrt(2)), polynomial of degree 10. All x; 0.96 ulp.
STRETTO_MATH_INLINE float log(float x) {
  const bool tiny = x < 0x1p-126f;
  const uint32_t u = bits(tiny ? x * 0x1p25f : x);
  const uint32_t biased = (u + (0x3F800000u - 0x3F3504F3u)) >> 23;
  const float f = from_bits(u - (biased << 23) + 0x3F800000u) - 1.0f;
  const float k = float(int32_t(biased)) - (tiny ? 152.0f : 127.0f);
  const float finite = log1p_reduced(f, k);
  const float positive = x < kInfinity ? finite : x;
  return x > 0.0f ? positive : x == 0.0f ? -kInfinity : kNaN;
}

}  // namespace detail

#ifdef __CUDA_ARCH__

STRETTO_MATH_INLINE float rsqrt(float x) { return ::rsqrtf(x); }
STRETTO_MATH_INLINE float exp(float x) { return ::expf(x); }
STRETTO_MATH_INLINE float exp_negative(float x) { return ::expf(x); }
STRETTO_MATH_INLINE float log(float x) { return ::logf(x); }
STRETTO_MATH_INLINE float log1p(float x) { return ::log1pf(x); }
STRETTO_MATH_INLINE float expm1(float x) { return ::expm1f(x); }
STRETTO_MATH_INLINE float tanh(float x) { return ::tanhf(x); }
STRETTO_MATH_INLINE float erf(float x) { return ::erff(x); }
STRETTO_MATH_INLINE float sin(float x) {
  const float a = std::fabs(x), y = a < 0x1p31f ? detail::sin_abs(x, 0) : detail::sin_far(x, 0);
  return detail::from_bits(detail::bits(y) ^ (detail::bits(x) & 0x80000000u));
}
STRETTO_MATH_INLINE float cos(float x) {
  return std::fabs(x) < 0x1p31f ? detail::sin_abs(x, 1) : detail::sin_far(x, 1);
}
STRETTO_MATH_INLINE float softplus(float x) {
  return ::fmaxf(x, 0.0f) + ::log1pf(::expf(-::fabsf(x)));
}

#else

// Square root and division, each rounded. All x; 1.5 ulp.
STRETTO_MATH_INLINE float rsqrt(float x) { return 1.0f / std::sqrt(x); }

// Reduction by ln 2, polynomial of degree 6. All x, including subnormal results; 0.88 ulp. Large x
// are clamped after rounding, as integers; the value of the polynomial does not matter then.
STRETTO_MATH_INLINE float exp(float x) {
  using detail::bits, detail::from_bits;
  constexpr float magic = detail::round_with(254);
  x = x < -105.0f ? -105.0f : x;
  const int32_t shifted = int32_t(bits(detail::fma(x, 1.44269504f, magic)));
  constexpr int32_t most = int32_t(std::bit_cast<uint32_t>(detail::round_with(254 + 128)));
  const uint32_t bounded = uint32_t(shifted < most ? shifted : most);
  const float y = detail::exp_reduced(detail::less_ln2(x, from_bits(bounded) - magic));
  const uint32_t both = bounded << 23, half = (both >> 1) & 0xFF800000u;
  return y * from_bits(half) * from_bits(both - half);
}

// Bit-identical to exp for x <= 0, in fewer instructions.
STRETTO_MATH_INLINE float exp_negative(float x) { return detail::exp_negative(x); }

STRETTO_MATH_INLINE float log(float x) { return detail::log(x); }

// log(u) with u = 1 + x rounded, plus the rounding error of u divided by u.
STRETTO_MATH_INLINE float log1p(float x) {
  const float u = 1.0f + x, log_u = detail::log(u);
  const float mended = log_u + (x - (u - 1.0f)) / u;
  return u > 0.0f && u < detail::kInfinity ? mended : log_u;
}

// As tanh, without cancellation, up to |x| = 1, then e^x - 1.
STRETTO_MATH_INLINE float expm1(float x) {
  constexpr float magic = detail::round_with(127);
  const float bounded = x > 1.0f ? 1.0f : x < -1.0f ? -1.0f : x;
  const float shifted = detail::fma(bounded, 1.44269504f, magic);
  const float r = detail::less_ln2(bounded, shifted - magic);
  float q = 0.00138698553f;  // polynomial of (e^r - 1 - r) / r^2
  q = detail::fma(q, r, 0.00836644694f);
  q = detail::fma(q, r, 0.0416674465f);
  q = detail::fma(q, r, 0.16666545f);
  q = detail::fma(q, r, 0.49999997f);
  const float power = detail::from_bits(detail::bits(shifted) << 23);
  const float small = detail::fma(power, detail::fma(q, r * r, r), power - 1.0f);
  const float large = exp(x) - 1.0f;
  return std::fabs(x) <= 1.0f ? small : large;
}

// E / (E + 2) with E = e^2|x| - 1, computed without cancellation. All x; 2.61 ulp.
STRETTO_MATH_INLINE float tanh(float x) {
  constexpr float magic = detail::round_with(127);
  const float a = std::fabs(x), bounded = a > 10.0f ? 10.0f : a;
  const float shifted = detail::fma(bounded, 2 * 1.44269504f, magic);
  const float r = detail::less_ln2(bounded, shifted - magic, 0.5f);
  float q = 0x1p6f * 0.00138698553f;  // polynomial of (e^2r - 1 - 2r) / r^2
  q = detail::fma(q, r, 0x1p5f * 0.00836644694f);
  q = detail::fma(q, r, 0x1p4f * 0.0416674465f);
  q = detail::fma(q, r, 0x1p3f * 0.16666545f);
  q = detail::fma(q, r, 0x1p2f * 0.49999997f);
  const float power = detail::from_bits(detail::bits(shifted) << 23);
  const float e = detail::fma(power, detail::fma(q, r * r, r + r), power - 1.0f);
  return detail::with_sign(e / (e + 2.0f), x);
}

// x + x P(x^2) up to |x| = 1, then 1 - Q(|x|)^8, degrees 6 and 7. All x; 1.9 ulp.
STRETTO_MATH_INLINE float erf(float x) {
  const float a = std::fabs(x);
  const float z = a * a;
  float p = 7.80698101e-5f;
  p = detail::fma(p, z, -0.000799786532f);
  p = detail::fma(p, z, 0.00518716266f);
  p = detail::fma(p, z, -0.0268533472f);
  p = detail::fma(p, z, 0.112835787f);
  p = detail::fma(p, z, -0.37612626f);
  p = detail::fma(p, z, 0.128379166f);
  const float t = a > 3.93f ? 3.93f : a;
  float q = 1.57842624e-5f;
  q = detail::fma(q, t, -4.15296054e-5f);
  q = detail::fma(q, t, -0.00149831665f);
  q = detail::fma(q, t, 0.0102485539f);
  q = detail::fma(q, t, -0.00704352139f);
  q = detail::fma(q, t, -0.0655390173f);
  q = detail::fma(q, t, -0.14293465f);
  q = detail::fma(q, t, 1.00037289f);
  q *= q;
  q *= q;
  return detail::with_sign(a > 1.0f ? detail::fma(-q, q, 1.0f) : detail::fma(a, p, a), x);
}

// log(1 + e^x) as max(x, 0) + log(1 + e^-|x|). All x, including subnormal results; 1.78 ulp.
STRETTO_MATH_INLINE float softplus(float x) {
  const float e = detail::exp_negative(-std::fabs(x));
  // 1 + e = 2^k (1 + f). By arithmetic, not by selections, for which g++ would duplicate the rest.
  const uint32_t big = (detail::bits(0.414213562f) - detail::bits(e)) >> 31;
  const float k = detail::from_bits(big * 0x3F800000u);
  const float f = (e - k) * (1.0f - 0.5f * k);
  return (x > 0.0f ? x : 0.0f) + detail::log1p_reduced(f, k);
}

// Reduction by pi/2 in double, degrees 7 (sine) and 8 (cosine). |x| < 2^31, else NaN; 1.55 ulp.
STRETTO_MATH_INLINE float sin(float x) {
  return detail::from_bits(detail::bits(detail::sin_abs(x, 0)) ^ (detail::bits(x) & 0x80000000u));
}
STRETTO_MATH_INLINE float cos(float x) { return detail::sin_abs(x, 1); }

#endif  // __CUDA_ARCH__

// e / (1 + e) or 1 / (1 + e) with e = e^-|x|. All x, including subnormal results; 2.41 ulp.
STRETTO_MATH_INLINE float sigmoid(float x) {
#ifdef __CUDA_ARCH__
  const float e = ::expf(-::fabsf(x));
#else
  const float e = detail::exp_negative(-std::fabs(x));
#endif
  return (x < 0.0f ? e : 1.0f) / (1.0f + e);
}

STRETTO_MATH_INLINE double rsqrt(double x) { return 1.0 / std::sqrt(x); }
STRETTO_MATH_INLINE double exp(double x) { return std::exp(x); }
STRETTO_MATH_INLINE double exp_negative(double x) { return std::exp(x); }
STRETTO_MATH_INLINE double log(double x) { return std::log(x); }
STRETTO_MATH_INLINE double log1p(double x) { return std::log1p(x); }
STRETTO_MATH_INLINE double expm1(double x) { return std::expm1(x); }
STRETTO_MATH_INLINE double tanh(double x) { return std::tanh(x); }
STRETTO_MATH_INLINE double erf(double x) { return std::erf(x); }
STRETTO_MATH_INLINE double sin(double x) { return std::sin(x); }
STRETTO_MATH_INLINE double cos(double x) { return std::cos(x); }
STRETTO_MATH_INLINE double sigmoid(double x) {
  const double e = std::exp(-std::fabs(x));
  return (x < 0.0 ? e : 1.0) / (1.0 + e);
}
STRETTO_MATH_INLINE double softplus(double x) {
  return (x > 0.0 ? x : 0.0) + std::log1p(std::exp(-std::fabs(x)));
}

}  // namespace stretto::math

#undef STRETTO_MATH_INLINE
