// Element types: the enum, the C++ type behind each, and dispatch from one to the other.
#pragma once

#include <bit>
#include <cstdint>
#include <limits>
#include <string>
#include <type_traits>
#include <utility>

#include "error.h"

namespace stretto {

/// f32 is the working type; f64 serves gradient checks; bf16 is for storage in training; i64 and
/// i32 are indices; u8 and boolean are masks.
enum class DType : uint8_t { f32, f64, bf16, i64, i32, u8, boolean };

inline constexpr DType f32 = DType::f32;
inline constexpr DType f64 = DType::f64;
inline constexpr DType bf16 = DType::bf16;
inline constexpr DType i64 = DType::i64;
inline constexpr DType i32 = DType::i32;
inline constexpr DType u8 = DType::u8;
inline constexpr DType boolean = DType::boolean;

/// bfloat16: the upper half of an f32. Rounds to nearest even, once, from any type; every NaN stays
/// a NaN.
struct BFloat16 {
  uint16_t bits = 0;
  BFloat16() = default;
  explicit BFloat16(float value) {
    const uint32_t u = std::bit_cast<uint32_t>(value);
    const uint32_t rounded = (u + 0x7fffu + ((u >> 16) & 1u)) >> 16;
    bits = uint16_t((u & 0x7fffffffu) > 0x7f800000u ? (u >> 16) | 0x40u : rounded);
  }
  explicit BFloat16(double value) : BFloat16(to_odd(value)) {}
  template <class I>
  requires std::is_integral_v<I>
  explicit BFloat16(I value) : BFloat16(to_odd(double(to_odd(value)))) {}
  operator float() const { return std::bit_cast<float>(uint32_t(bits) << 16); }

 private:
  // Rounded to nearest even twice, what lies just beside the middle between two results may reach
  // the middle first. Rounded to odd first (toward 0, and the last bit set unless that is exact) it
  // stays on its side (Boldo & Melquiond, "Emulation of FMA and correctly rounded sums", 2008).
  static float to_odd(double value) {
    const float near = float(value);
    if (double(near) == value) return near;
    uint32_t u = std::bit_cast<uint32_t>(near);
    if ((near < 0 ? -double(near) : double(near)) > (value < 0 ? -value : value)) --u;
    return std::bit_cast<float>(u | 1u);
  }
  // One that an f64 has, which is any below 2⁵³.
  template <class I>
  static I to_odd(I value) {
    if constexpr (sizeof(I) < 8) {
      return value;
    } else {
      const I high = value >> 53;
      if (high == 0 || high == I(-1) || (value & I(0x7ff)) == 0) return value;
      return I((value & ~I(0x7ff)) | I(0x400));
    }
  }
};

constexpr bool is_floating(DType t) { return t <= DType::bf16; }
/// What sums and products of a floating dtype are computed in: f64 for f64, else f32. As compute_t.
constexpr DType compute_type(DType t) { return t == DType::f64 ? DType::f64 : DType::f32; }
/// Whether a floating dtype is narrower than what it is computed in.
constexpr bool is_narrow(DType t) { return is_floating(t) && compute_type(t) != t; }
constexpr bool is_index(DType t) { return t == DType::i64 || t == DType::i32; }
constexpr bool is_mask(DType t) { return t == DType::u8 || t == DType::boolean; }

/// Bytes of one element.
constexpr int64_t item_size(DType t) {
  constexpr int64_t sizes[] = {4, 8, 2, 8, 4, 1, 1};
  return sizes[int(t)];
}

/// "f32", "f64", "bf16", "i64", "i32", "u8", "bool".
const char* name(DType t);
inline void append_text(std::string& to, DType t) { to += name(t); }

/// Throws unless t is a floating dtype.
inline void check_floating(const char* op, DType t) {
  if (!is_floating(t)) fail(op, "got ", t, "; accepted: f32, f64, bf16");
}

/// The type that both operands of an arithmetic op are converted to: floating beats integer beats
/// bool; among floating types f64 > f32 > bf16, among integers i64 > i32 > u8.
DType promote(DType a, DType b);

/// Whether `value` is one of `t`'s: any number for a floating dtype (rounded) and bool (0 or not),
/// whole numbers within the range for integers.
bool has_value(DType t, double value);
/// Throws unless it is.
void check_value(const char* op, DType t, double value);

template <class T>
constexpr DType dtype_of() {
  if constexpr (std::is_same_v<T, float>)
    return DType::f32;
  else if constexpr (std::is_same_v<T, double>)
    return DType::f64;
  else if constexpr (std::is_same_v<T, BFloat16>)
    return DType::bf16;
  else if constexpr (std::is_same_v<T, int64_t>)
    return DType::i64;
  else if constexpr (std::is_same_v<T, int32_t>)
    return DType::i32;
  else if constexpr (std::is_same_v<T, uint8_t>)
    return DType::u8;
  else {
    static_assert(std::is_same_v<T, bool>, "no DType for this C++ type");
    return DType::boolean;
  }
}

/// Returns f<T>() with the T among Types whose dtype `t` is, or with the last one if it is none.
template <class T, class... Types, class F>
decltype(auto) dispatch_among(DType t, F&& f) {
  if constexpr (sizeof...(Types) > 0) {
    if (t != dtype_of<T>()) return dispatch_among<Types...>(t, std::forward<F>(f));
  }
  return f.template operator()<T>();
}

/// Returns f<T>() with the C++ type of `t`:  dispatch(x.dtype(), [&]<class T>() { … })
template <class F>
decltype(auto) dispatch(DType t, F&& f) {
  return dispatch_among<float, double, BFloat16, int64_t, int32_t, uint8_t, bool>(
      t, std::forward<F>(f));
}

/// The same for f32, f64 and bf16 only; other types are an error that names `op`.
template <class F>
decltype(auto) dispatch_floating(DType t, const char* op, F&& f) {
  check_floating(op, t);
  return dispatch_among<float, double, BFloat16>(t, std::forward<F>(f));
}

/// The same for i64 and i32 only.
template <class F>
decltype(auto) dispatch_index(DType t, const char* op, F&& f) {
  if (!is_index(t)) fail(op, "indices are ", t, "; accepted: i64, i32");
  return dispatch_among<int64_t, int32_t>(t, std::forward<F>(f));
}

/// What sums and products of T are computed in: f32 for bf16, otherwise T itself.
template <class T>
using compute_t = std::conditional_t<std::is_same_v<T, BFloat16>, float, T>;

/// x in another type, as Tensor::to does it: floating to integer cuts the fraction off, what is
/// beyond the range becomes its nearest end, and NaN 0; integers to narrower ones wrap around.
template <class To, class From>
constexpr To convert(From x) {
  using F = compute_t<From>;
  if constexpr (std::is_integral_v<To> && !std::is_same_v<To, bool> &&
                std::is_floating_point_v<F>) {
    using Limits = std::numeric_limits<To>;
    constexpr To half = Limits::max() / 2 + 1;
    constexpr F least = F(Limits::min()), end = F(half) * F(2);
    const F value = F(x);
    const To inside = To(value > least && value < end ? value : F(0));
    return value >= end ? Limits::max() : value <= least ? Limits::min() : inside;
  } else {
    return static_cast<To>(x);
  }
}

}  // namespace stretto
