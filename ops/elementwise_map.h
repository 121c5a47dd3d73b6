// Functions of one tensor on the CPU: a kernel per function for f32 and f64, and loops that run
// them, compiled once for all functions. bf16 is converted to f32 and back a block at a time.
// Internal to ops/.
#pragma once

#include <algorithm>
#include <cmath>

#include "../core/formulas/elementwise_math.h"
#include "loops.h"

namespace stretto::elementwise {

/// The scalar arguments of a function: c of x + c, or the bounds of clamp.
struct Numbers {
  double first = 0, second = 0;
};

/// Computes y = F::value(x, numbers), in f32 for bf16. f64 is for gradient checks and
/// has no STRETTO_CLONES.
template <class F>
STRETTO_CLONES void map_bf16(const BFloat16* x, BFloat16* y, int64_t n, Numbers c) {
  for (int64_t i = 0; i < n; ++i) y[i] = BFloat16(F::value(float(x[i]), c));
}
template <class F>
STRETTO_CLONES void map_f32(const float* x, float* y, int64_t n, Numbers c) {
  for (int64_t i = 0; i < n; ++i) y[i] = F::value(x[i], c);
}
template <class F>
void map_f64(const double* x, double* y, int64_t n, Numbers c) {
  for (int64_t i = 0; i < n; ++i) y[i] = F::value(x[i], c);
}

/// Computes y = F::derivative(x, x) · g; y may be g.
template <class F>
STRETTO_CLONES void slope_bf16(const BFloat16* x, const BFloat16* g, BFloat16* y, int64_t n) {
#pragma GCC ivdep
  for (int64_t i = 0; i < n; ++i) {
    const float v = float(x[i]);
    y[i] = BFloat16(F::derivative(v, v) * float(g[i]));
  }
}
template <class F>
STRETTO_CLONES void slope_f32(const float* x, const float* g, float* y, int64_t n) {
#pragma GCC ivdep
  for (int64_t i = 0; i < n; ++i) y[i] = F::derivative(x[i], x[i]) * g[i];
}
template <class F>
void slope_f64(const double* x, const double* g, double* y, int64_t n) {
#pragma GCC ivdep
  for (int64_t i = 0; i < n; ++i) y[i] = F::derivative(x[i], x[i]) * g[i];
}

/// F of x alone; of x and a number; of a number and x.
template <class F>
struct Alone {
  template <class T>
  static T value(T x, Numbers) {
    return F::value(x);
  }
};
template <class F>
struct WithNumber {
  template <class T>
  static T value(T x, Numbers c) {
    return F::value(x, T(c.first));
  }
};
template <class F>
struct NumberWith {
  template <class T>
  static T value(T x, Numbers c) {
    return F::value(T(c.first), x);
  }
};
struct Clamp {
  template <class T>
  static T value(T x, Numbers bounds) {
    return clamp(x, bounds.first, bounds.second);
  }
};

/// True if the function has a bf16 kernel: if conversion by blocks would take noticeable time.
template <class F>
inline constexpr bool has_bf16_kernel = false;
template <>
inline constexpr bool has_bf16_kernel<Relu> = true;
template <>
inline constexpr bool has_bf16_kernel<Gelu> = true;
template <>
inline constexpr bool has_bf16_kernel<GeluTanh> = true;
template <class F>
inline constexpr bool has_bf16_kernel<Alone<F>> = has_bf16_kernel<F>;
template <>
inline constexpr bool has_bf16_kernel<WithNumber<Add>> = true;
template <>
inline constexpr bool has_bf16_kernel<WithNumber<Mul>> = true;

struct Map {
  void (*f32)(const float* x, float* y, int64_t n, Numbers c);
  void (*f64)(const double* x, double* y, int64_t n, Numbers c);
  void (*bf16)(const BFloat16* x, BFloat16* y, int64_t n, Numbers c) = nullptr;
  double (*far)(double) = nullptr;  // f from the standard library, for |x| ≥ 2^31 (mend_far)
};
template <class F>
constexpr Map map_of() {
  if constexpr (has_bf16_kernel<F>)
    return {map_f32<F>, map_f64<F>, map_bf16<F>};
  else
    return {map_f32<F>, map_f64<F>};
}

struct Slope {
  void (*f32)(const float* x, const float* g, float* y, int64_t n);
  void (*f64)(const double* x, const double* g, double* y, int64_t n);
  void (*bf16)(const BFloat16* x, const BFloat16* g, BFloat16* y, int64_t n) = nullptr;
  double (*far)(double) = nullptr;
};
template <class F>
constexpr Slope slope_of() {
  if constexpr (has_bf16_kernel<F>)
    return {slope_f32<F>, slope_f64<F>, slope_bf16<F>};
  else
    return {slope_f32<F>, slope_f64<F>};
}

template <class To, class From>
STRETTO_CLONES void convert_run(const From* x, To* y, int64_t n) {
  for (int64_t i = 0; i < n; ++i) y[i] = To(x[i]);
}

STRETTO_CLONES inline bool any_far(const float* x, int64_t n) {
  int far = 0;
  for (int64_t i = 0; i < n; ++i) far |= math::abs(x[i]) >= 0x1p31f;
  return far != 0;
}

/// The vector code of math::sin and math::cos requires |x| < 2^31. Replaces the results of larger x
/// by f(x) of the standard library, times g unless it is null.
inline void mend_far(const float* x, const float* g, float* y, int64_t n, double (*f)(double)) {
  if (!f || !any_far(x, n)) return;
  for (int64_t i = 0; i < n; ++i)
    if (std::fabs(x[i]) >= 0x1p31f) y[i] = float(f(double(x[i]))) * (g ? g[i] : 1.0f);
}

/// Calls f(first, n) for blocks of [begin, end) that fit into the L1 cache together with
/// their f32 copies.
inline constexpr int64_t block = 1024;
template <class F>
void each_block(int64_t begin, int64_t end, F&& f) {
  for (; begin < end; begin += block) f(begin, std::min(block, end - begin));
}

/// Returns f(x), contiguous, for a floating-point tensor x.
inline Tensor run_map(const Map& f, const Tensor& input, Numbers c = {}) {
  const Tensor x = input.contiguous();
  Tensor y = empty_like(x);
  parallel_for(x.numel(), 16384, [&](int64_t begin, int64_t end) {
    if (x.dtype() == f64)
      return f.f64(x.data<double>() + begin, y.data<double>() + begin, end - begin, c);
    if (x.dtype() == f32) {
      const float* from = x.data<float>() + begin;
      float* to = y.data<float>() + begin;
      f.f32(from, to, end - begin, c);
      return mend_far(from, nullptr, to, end - begin, f.far);
    }
    const BFloat16* from = x.data<BFloat16>();
    BFloat16* to = y.data<BFloat16>();
    if (f.bf16) return f.bf16(from + begin, to + begin, end - begin, c);
    each_block(begin, end, [&](int64_t first, int64_t n) {
      float wide[block], result[block];
      convert_run(from + first, wide, n);
      f.f32(wide, result, n, c);
      mend_far(wide, nullptr, result, n, f.far);
      convert_run(result, to + first, n);
    });
  });
  return y;
}

/// Returns g · F′ in one loop, in g's memory if no other handle refers to it. `at` is the tensor
/// that the derivative reads, x or y.
inline Tensor run_slope(const Slope& f, const Tensor& at, const Tensor& grad) {
  const Tensor x = at.contiguous();
  Tensor copy;
  const Tensor& g = contiguous(grad, copy);
  Tensor y = f.far ? empty_like(g) : in_place_or_new(g);  // mend_far reads g again
  parallel_for(x.numel(), 16384, [&](int64_t begin, int64_t end) {
    if (x.dtype() == f64)
      return f.f64(x.data<double>() + begin, g.data<double>() + begin, y.data<double>() + begin,
                   end - begin);
    if (x.dtype() == f32) {
      const float *from = x.data<float>() + begin, *incoming = g.data<float>() + begin;
      float* to = y.data<float>() + begin;
      f.f32(from, incoming, to, end - begin);
      return mend_far(from, incoming, to, end - begin, f.far);
    }
    const BFloat16 *from = x.data<BFloat16>(), *incoming = g.data<BFloat16>();
    BFloat16* to = y.data<BFloat16>();
    if (f.bf16) return f.bf16(from + begin, incoming + begin, to + begin, end - begin);
    each_block(begin, end, [&](int64_t first, int64_t n) {
      float wide[block], slope[block], result[block];
      convert_run(from + first, wide, n);
      convert_run(incoming + first, slope, n);
      f.f32(wide, slope, result, n);
      mend_far(wide, slope, result, n, f.far);
      convert_run(result, to + first, n);
    });
  });
  return y;
}

}  // namespace stretto::elementwise
