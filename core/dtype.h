// Element types: the enum, the C++ type of each, and dispatch from a DType to its C++ type.
#pragma once

#include <bit>
#include <cstdint>
#include <limits>
#include <string>
#include <type_traits>
#include <utility>

#include "error.h"

namespace stretto {

/// Element types. f32 is the default. bf16 is a storage type for training; computations with it use
/// f32. f64 is for gradient checks, i64 and i32 are for indices, and u8 and boolean for masks.
enum class DType : uint8_t { f32, f64, bf16, i64, i32, u8, boolean };

inline constexpr DType f32 = DType::f32;          ///< 32-bit IEEE floating point.
inline constexpr DType f64 = DType::f64;          ///< 64-bit IEEE floating point.
inline constexpr DType bf16 = DType::bf16;        ///< bfloat16.
inline constexpr DType i64 = DType::i64;          ///< 64-bit integer.
inline constexpr DType i32 = DType::i32;          ///< 32-bit integer.
inline constexpr DType u8 = DType::u8;            ///< 8-bit unsigned integer.
inline constexpr DType boolean = DType::boolean;  ///< Truth value, one byte.

/// bfloat16: the upper half of an f32. Conversion from any type rounds once, to nearest even. A NaN
/// stays a NaN.
struct BFloat16 {
  uint16_t bits = 0;  ///< The upper 16 bits of the f32.
  BFloat16() = default;
  /// Rounds an f32.
  explicit BFloat16(float value) {
    const uint32_t u = std::bit_cast<uint32_t>(value);
    const uint32_t rounded = (u + 0x7fffu + ((u >> 16) & 1u)) >> 16;
    bits = uint16_t((u & 0x7fffffffu) > 0x7f800000u ? (u >> 16) | 0x40u : rounded);
  }
  /// Rounds an f64, once.
  explicit BFloat16(double value) : BFloat16(to_odd(value)) {}
  /// Rounds an integer, once.
  template <class I>
  requires std::is_integral_v<I>
  explicit BFloat16(I value) : BFloat16(to_odd(double(to_odd(value)))) {}
  /// Returns the value as f32, exactly.
  operator float() const { return std::bit_cast<float>(uint32_t(bits) << 16); }

 private:
  // Rounds to odd: toward 0, with the last bit set unless the result is exact. A following rounding
  // to nearest even is then correct. Rounding to nearest even twice is not: the first rounding may
  // move a value onto the midpoint between two results (Boldo & Melquiond, "Emulation of FMA and
  // correctly rounded sums", 2008).
  static float to_odd(double value) {
    const float near = float(value);
    if (double(near) == value) return near;
    uint32_t u = std::bit_cast<uint32_t>(near);
    if ((near < 0 ? -double(near) : double(near)) > (value < 0 ? -value : value)) --u;
    return std::bit_cast<float>(u | 1u);
  }
  // The same for integers: rounds to odd, to an integer that f64 represents exactly. Magnitudes
  // below 2⁵³ are returned unchanged.
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

/// True for f32, f64 and bf16.
constexpr bool is_floating(DType t) { return t <= DType::bf16; }
/// Returns the dtype in which sums and products of a floating-point dtype are computed: f64 for
/// f64, else f32. Matches compute_t.
constexpr DType compute_type(DType t) { return t == DType::f64 ? DType::f64 : DType::f32; }
/// True if a floating-point dtype is narrower than its compute_type(). True only for bf16.
constexpr bool is_narrow(DType t) { return is_floating(t) && compute_type(t) != t; }
/// True for i64 and i32.
constexpr bool is_index(DType t) { return t == DType::i64 || t == DType::i32; }
/// True for u8 and boolean.
constexpr bool is_mask(DType t) { return t == DType::u8 || t == DType::boolean; }

/// Returns the size of one element in bytes.
constexpr int64_t item_size(DType t) {
  constexpr int64_t sizes[] = {4, 8, 2, 8, 4, 1, 1};
  return sizes[int(t)];
}

/// Returns "f32", "f64", "bf16", "i64", "i32", "u8" or "bool".
const char* name(DType t);
/// Appends the name.
inline void append_text(std::string& to, DType t) { to += name(t); }

/// Throws unless t is a floating-point dtype.
inline void check_floating(const char* op, DType t) {
  if (!is_floating(t)) fail(op, "got ", t, "; accepted: f32, f64, bf16");
}

/// Returns the dtype to which both operands of an arithmetic op are converted: the one of a and b
/// that comes first in the order f64, f32, bf16, i64, i32, u8, bool.
DType promote(DType a, DType b);

/// True if `value` can be stored in `t`. Always true for floating-point dtypes (which may round it)
/// and for bool (which stores only whether it is 0). For integer dtypes true for whole numbers in
/// the range of the dtype.
bool has_value(DType t, double value);
/// Throws unless has_value(t, value).
void check_value(const char* op, DType t, double value);

/// Returns the dtype of a C++ type.
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

/// Returns f<C>(), where C is the one of T, Types… whose dtype is `t`, or the last of them if
/// there is none.
template <class T, class... Types, class F>
decltype(auto) dispatch_among(DType t, F&& f) {
  if constexpr (sizeof...(Types) > 0) {
    if (t != dtype_of<T>()) return dispatch_among<Types...>(t, std::forward<F>(f));
  }
  return f.template operator()<T>();
}

/// Returns f<T>() with the C++ type of `t`: `dispatch(x.dtype(), [&]<class T>() { … })`.
template <class F>
decltype(auto) dispatch(DType t, F&& f) {
  return dispatch_among<float, double, BFloat16, int64_t, int32_t, uint8_t, bool>(
      t, std::forward<F>(f));
}

/// Does the same as dispatch() for f32, f64 and bf16; throws for other dtypes.
template <class F>
decltype(auto) dispatch_floating(DType t, const char* op, F&& f) {
  check_floating(op, t);
  return dispatch_among<float, double, BFloat16>(t, std::forward<F>(f));
}

/// Does the same as dispatch() for i64 and i32; throws for other dtypes.
template <class F>
decltype(auto) dispatch_index(DType t, const char* op, F&& f) {
  if (!is_index(t)) fail(op, "indices are ", t, "; accepted: i64, i32");
  return dispatch_among<int64_t, int32_t>(t, std::forward<F>(f));
}

/// The type in which sums and products of T are computed: float for BFloat16, otherwise T itself.
template <class T>
using compute_t = std::conditional_t<std::is_same_v<T, BFloat16>, float, T>;

/// Converts x to another type, as Tensor::to does. Conversion from floating-point to integer types
/// truncates, saturates and maps NaN to 0; conversion to a narrower integer type wraps around.
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
