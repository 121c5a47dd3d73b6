// The float functions of core/math.h against the standard library in double, in units in the last
// place (ulp), over bit patterns spread evenly over all floats.

#include "core/math.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "tests/support/catch.h"

namespace math = stretto::math;

namespace {

constexpr float infinity = std::numeric_limits<float>::infinity();
constexpr float largest = std::numeric_limits<float>::max();
constexpr float smallest_normal = std::numeric_limits<float>::min();
constexpr float smallest = std::numeric_limits<float>::denorm_min();

float next_up(float x) { return std::nextafter(x, infinity); }
float next_down(float x) { return std::nextafter(x, -infinity); }

bool same_bits(float a, float b) {
  return std::bit_cast<uint32_t>(a) == std::bit_cast<uint32_t>(b);
}

/// Returns the distance from `actual` to the real number `exact`, in the spacing of floats there.
/// Infinity counts as the next float after the largest.
double ulps(float actual, double exact) {
  if (std::isnan(exact) || std::isnan(actual)) {
    return std::isnan(exact) && std::isnan(actual) ? 0.0 : HUGE_VAL;
  }
  if (std::isinf(exact)) return double(actual) == exact ? 0.0 : HUGE_VAL;
  int exponent = -125;
  if (exact != 0) std::frexp(exact, &exponent);
  const double spacing = std::ldexp(1.0, std::clamp(exponent, -125, 128) - 24);
  if (std::isinf(actual)) {
    // Correct if rounding to nearest overflows.
    const double edge = double(largest) + std::ldexp(1.0, 103);
    const bool same_side = std::signbit(actual) == std::signbit(exact);
    return same_side ? std::max(0.0, edge - std::fabs(exact)) / spacing : HUGE_VAL;
  }
  return std::fabs(double(actual) - exact) / spacing;
}

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__) || !defined(__OPTIMIZE__)
constexpr uint64_t stride = 9973;
#else
constexpr uint64_t stride = 1993;
#endif

struct Worst {
  double ulps = 0;
  float at = 0;
};

/// `f` fills y from x, n elements at a time, so that the vectorized code is tested.
template <class F, class Exact>
Worst worst_error(F f, Exact exact) {
  Worst worst;
  std::array<float, 1024> x, y;
  for (uint64_t pattern = 0; pattern < uint64_t(1) << 32;) {
    int n = 0;
    for (; n < int(x.size()) && pattern < uint64_t(1) << 32; pattern += stride) {
      x[size_t(n++)] = std::bit_cast<float>(uint32_t(pattern));
    }
    f(x.data(), y.data(), n);
    for (size_t i = 0; i < size_t(n); ++i) {
      const double error = ulps(y[i], exact(double(x[i])));
      if (error > worst.ulps) worst = {error, x[i]};
    }
  }
  return worst;
}

// One loop per function, compiled for each instruction set (STRETTO_CLONES); the test runs the
// version that this CPU selects.
#define LOOP(name)                                                   \
  STRETTO_CLONES void name##_loop(const float* x, float* y, int n) { \
    for (int i = 0; i < n; ++i) y[i] = math::name(x[i]);             \
  }
LOOP(exp)
LOOP(log)
LOOP(log1p)
LOOP(expm1)
LOOP(tanh)
LOOP(sigmoid)
LOOP(erf)
LOOP(softplus)
LOOP(sqrt)
LOOP(rsqrt)
LOOP(sin)
LOOP(cos)
#undef LOOP

double exact_sigmoid(double x) {
  const double e = std::exp(-std::fabs(x));
  return (x < 0 ? e : 1.0) / (1.0 + e);
}
double exact_softplus(double x) { return (x > 0 ? x : 0.0) + std::log1p(std::exp(-std::fabs(x))); }

/// Returns `f` below 2^31 and NaN from there on: the domain of sin and cos.
template <class F>
double within_2_31(F f, double x) {
  return std::fabs(x) < 2147483648.0 ? f(x) : NAN;
}

#define CHECK_ULPS(name, exact, bound)                                            \
  do {                                                                            \
    const Worst worst = worst_error(name##_loop, [](double x) { return exact; }); \
    INFO(#name "(" << worst.at << ") is off by " << worst.ulps << " ulp");        \
    CHECK(worst.ulps <= bound);                                                   \
  } while (false)

}  // namespace

TEST_CASE("math: errors stay within their bounds over all floats", "[math]") {
  CHECK_ULPS(exp, std::exp(x), 0.9);
  CHECK_ULPS(log, std::log(x), 1.0);
  CHECK_ULPS(log1p, std::log1p(x), 2.0);
  CHECK_ULPS(expm1, std::expm1(x), 2.6);
  CHECK_ULPS(tanh, std::tanh(x), 2.6);
  CHECK_ULPS(sigmoid, exact_sigmoid(x), 2.6);
  CHECK_ULPS(erf, std::erf(x), 2.0);
  CHECK_ULPS(softplus, exact_softplus(x), 1.9);
  CHECK_ULPS(sqrt, std::sqrt(x), 0.5);
  CHECK_ULPS(rsqrt, 1.0 / std::sqrt(x), 1.5);
  CHECK_ULPS(sin, within_2_31([](double v) { return std::sin(v); }, x), 1.6);
  CHECK_ULPS(cos, within_2_31([](double v) { return std::cos(v); }, x), 1.6);
}

TEST_CASE("math: sin and cos are NaN outside their domain", "[math]") {
  CHECK(std::isfinite(math::sin(next_down(2147483648.0f))));
  for (float x : {2147483648.0f, -2147483648.0f, largest, infinity, -infinity, NAN}) {
    CHECK(std::isnan(math::sin(x)));
    CHECK(std::isnan(math::cos(x)));
  }
  CHECK(same_bits(math::sin(0.0f), 0.0f));
  CHECK(same_bits(math::sin(-0.0f), -0.0f));
  CHECK(same_bits(math::cos(0.0f), 1.0f));
  CHECK(same_bits(math::sin(smallest), smallest));
}

TEST_CASE("math: sin and cos are accurate next to multiples of pi/2", "[math]") {
  // Cancellation in the range reduction is largest at the floats on either side of each multiple.
  constexpr double half_pi = 1.5707963267948966;
  double worst = 0;
  for (double k = 1; k < 1.3e9; k = std::floor(k * 1.001) + 1) {
    const float near = float(k * half_pi);
    for (float x : {next_down(near), near, next_up(near)}) {
      worst = std::max(worst, ulps(math::sin(x), std::sin(double(x))));
      worst = std::max(worst, ulps(math::cos(x), std::cos(double(x))));
    }
  }
  CHECK(worst <= 1.6);
}

TEST_CASE("math: NaN gives NaN", "[math]") {
  // Quiet and signaling, of either sign, with any payload.
  for (uint32_t pattern : {0x7FC00000u, 0xFFC00000u, 0x7F800001u, 0xFF800001u, 0x7FFFFFFFu,
                           0xFFFFFFFFu, 0x7FA5A5A5u}) {
    const float x = std::bit_cast<float>(pattern);
    CHECK(std::isnan(math::exp(x)));
    CHECK(std::isnan(math::log(x)));
    CHECK(std::isnan(math::tanh(x)));
    CHECK(std::isnan(math::sigmoid(x)));
    CHECK(std::isnan(math::erf(x)));
    CHECK(std::isnan(math::softplus(x)));
    CHECK(std::isnan(math::sqrt(x)));
    CHECK(std::isnan(math::rsqrt(x)));
    CHECK(std::isnan(math::sin(x)));
    CHECK(std::isnan(math::cos(x)));
    CHECK(std::isnan(math::abs(x)));
  }
}

TEST_CASE("math: exp at overflow and underflow", "[math]") {
  CHECK(same_bits(math::exp(0.0f), 1.0f));
  CHECK(same_bits(math::exp(-0.0f), 1.0f));
  CHECK(math::exp(infinity) == infinity);
  CHECK(same_bits(math::exp(-infinity), 0.0f));
  CHECK(math::exp(largest) == infinity);
  CHECK(same_bits(math::exp(-largest), 0.0f));

  // The last finite result, the first infinite one, and monotonicity between them.
  constexpr float last_finite = 88.7228317f;
  CHECK(std::isfinite(math::exp(last_finite)));
  CHECK(math::exp(next_up(last_finite)) == infinity);
  for (float x = 88.72f; x < 88.73f; x = next_up(x)) {
    REQUIRE(math::exp(x) <= math::exp(next_up(x)));
  }

  // Through the subnormal results down to zero.
  for (float x = -87.0f; x > -106.0f; x -= 1.0f / 64) {
    REQUIRE(ulps(math::exp(x), std::exp(double(x))) <= 1.0);
    REQUIRE(math::exp(x) >= math::exp(x - 1.0f / 64));
  }
  CHECK(same_bits(math::exp(-103.9f), smallest));
  CHECK(same_bits(math::exp(-104.0f), 0.0f));
}

TEST_CASE("math: exp_negative is bit-identical to exp", "[math]") {
  for (uint64_t pattern = 0x80000000u; pattern <= 0xFF800000u; pattern += stride) {
    const float x = std::bit_cast<float>(uint32_t(pattern));
    REQUIRE(same_bits(math::exp_negative(x), math::exp(x)));
  }
  CHECK(math::exp_negative(0.0f) == 1.0f);
  CHECK(std::isnan(math::exp_negative(NAN)));
  CHECK(std::isnan(math::exp_negative(-NAN)));
  CHECK(math::exp_negative(-2.0) == std::exp(-2.0));
}

TEST_CASE("math: log at 0, at infinity and of negative values", "[math]") {
  CHECK(same_bits(math::log(1.0f), 0.0f));
  CHECK(math::log(0.0f) == -infinity);
  CHECK(math::log(-0.0f) == -infinity);
  CHECK(math::log(infinity) == infinity);
  for (float x : {-smallest, -smallest_normal, -1.0f, -largest, -infinity}) {
    CHECK(std::isnan(math::log(x)));
  }
  for (float x : {smallest, 3 * smallest, next_down(smallest_normal), smallest_normal,
                  next_down(1.0f), next_up(1.0f), largest}) {
    CHECK(ulps(math::log(x), std::log(double(x))) <= 1.0);
  }
}

TEST_CASE("math: odd functions are odd bit for bit", "[math]") {
  const auto check = [](auto f, float one_from) {
    CHECK(same_bits(f(0.0f), 0.0f));
    CHECK(same_bits(f(-0.0f), -0.0f));
    CHECK(f(infinity) == 1.0f);
    CHECK(f(-infinity) == -1.0f);
    CHECK(f(one_from) == 1.0f);
    CHECK(f(largest) == 1.0f);
    for (uint64_t pattern = 0; pattern <= 0x7F800000u; pattern += 99991) {
      const float x = std::bit_cast<float>(uint32_t(pattern));
      REQUIRE(same_bits(f(-x), -f(x)));
      REQUIRE(f(x) <= 1.0f);
    }
  };
  check([](float x) { return math::tanh(x); }, 9.1f);
  check([](float x) { return math::erf(x); }, 3.93f);
  CHECK(same_bits(math::tanh(1e-20f), 1e-20f));
  CHECK(same_bits(math::tanh(smallest), smallest));
  CHECK(ulps(math::erf(1e-20f), std::erf(double(1e-20f))) <= 1.0);
  CHECK(same_bits(math::erf(smallest), smallest));
  for (float x = -20.0f; x < 20.0f; x += 0.037f) REQUIRE(same_bits(math::sin(-x), -math::sin(x)));
  for (float x = 0.0f; x < 20.0f; x += 0.037f) REQUIRE(same_bits(math::cos(-x), math::cos(x)));
}

TEST_CASE("math: sigmoid and softplus at both ends of their range", "[math]") {
  CHECK(math::sigmoid(0.0f) == 0.5f);
  CHECK(math::sigmoid(infinity) == 1.0f);
  CHECK(math::sigmoid(1000.0f) == 1.0f);
  CHECK(same_bits(math::sigmoid(-infinity), 0.0f));
  CHECK(same_bits(math::sigmoid(-1000.0f), 0.0f));
  CHECK(math::softplus(infinity) == infinity);
  CHECK(math::softplus(largest) == largest);
  CHECK(math::softplus(1000.0f) == 1000.0f);
  CHECK(same_bits(math::softplus(-infinity), 0.0f));
  CHECK(same_bits(math::softplus(-1000.0f), 0.0f));
  // Subnormal results.
  for (float x : {-88.0f, -95.5f, -100.0f, -103.0f}) {
    CHECK(ulps(math::sigmoid(x), exact_sigmoid(x)) <= 1.0);
    CHECK(ulps(math::softplus(x), exact_softplus(x)) <= 1.0);
  }
}

TEST_CASE("math: square roots and absolute value", "[math]") {
  CHECK(math::sqrt(4.0f) == 2.0f);
  CHECK(same_bits(math::sqrt(-0.0f), -0.0f));
  CHECK(std::isnan(math::sqrt(-1.0f)));
  CHECK(math::sqrt(infinity) == infinity);
  CHECK(math::rsqrt(4.0f) == 0.5f);
  CHECK(math::rsqrt(0.0f) == infinity);
  CHECK(math::rsqrt(infinity) == 0.0f);
  CHECK(std::isnan(math::rsqrt(-1.0f)));
  CHECK(same_bits(math::abs(-0.0f), 0.0f));
  CHECK(math::abs(-infinity) == infinity);
  CHECK(math::abs(-3.5f) == 3.5f);
}

TEST_CASE("math: a loop and a single call are bit-identical", "[math]") {
  // Whichever version runs, it must be compiled without contraction to FMA and without approximate
  // instructions.
  std::vector<float> x, y;
  for (uint64_t pattern = 0; pattern < uint64_t(1) << 32; pattern += 999983) {
    x.push_back(std::bit_cast<float>(uint32_t(pattern)));
  }
  y.resize(x.size());
  const auto check = [&](auto loop, auto one) {
    loop(x.data(), y.data(), int(x.size()));
    for (size_t i = 0; i < x.size(); ++i) {
      const float expected = one(x[i]);
      REQUIRE((same_bits(y[i], expected) || (std::isnan(y[i]) && std::isnan(expected))));
    }
  };
  check(exp_loop, [](float v) { return math::exp(v); });
  check(log_loop, [](float v) { return math::log(v); });
  check(tanh_loop, [](float v) { return math::tanh(v); });
  check(sigmoid_loop, [](float v) { return math::sigmoid(v); });
  check(erf_loop, [](float v) { return math::erf(v); });
  check(softplus_loop, [](float v) { return math::softplus(v); });
  check(sqrt_loop, [](float v) { return math::sqrt(v); });
  check(rsqrt_loop, [](float v) { return math::rsqrt(v); });
  check(sin_loop, [](float v) { return math::sin(v); });
  check(cos_loop, [](float v) { return math::cos(v); });
}

TEST_CASE("math: functions of double", "[math]") {
  constexpr double inf = std::numeric_limits<double>::infinity();
  for (double x : {-800.0, -40.0, -1.5, -1e-9, 0.0, 0.3, 2.0, 37.0, 800.0}) {
    CHECK(math::exp(x) == std::exp(x));
    CHECK(math::tanh(x) == std::tanh(x));
    CHECK(math::erf(x) == std::erf(x));
    CHECK(math::sin(x) == std::sin(x));
    CHECK(math::cos(x) == std::cos(x));
    CHECK(math::abs(x) == std::fabs(x));
    const long double e = std::exp(-std::fabs((long double)x));
    const long double sigmoid = (x < 0 ? e : 1.0L) / (1.0L + e);
    const long double softplus = (x > 0 ? (long double)x : 0.0L) + std::log1p(e);
    CHECK(math::sigmoid(x) == Approx(double(sigmoid)).epsilon(1e-15));
    CHECK(math::softplus(x) == Approx(double(softplus)).epsilon(1e-15));
  }
  for (double x : {1e-300, 0.5, 1.0, 3.0, 1e300}) {
    CHECK(math::log(x) == std::log(x));
    CHECK(math::sqrt(x) == std::sqrt(x));
    CHECK(math::rsqrt(x) == 1.0 / std::sqrt(x));
  }
  CHECK(math::sigmoid(-inf) == 0.0);
  CHECK(math::sigmoid(inf) == 1.0);
  CHECK(math::softplus(-inf) == 0.0);
  CHECK(math::softplus(inf) == inf);
  CHECK(std::isnan(math::sigmoid(std::numeric_limits<double>::quiet_NaN())));
  CHECK(std::isnan(math::softplus(std::numeric_limits<double>::quiet_NaN())));
}
