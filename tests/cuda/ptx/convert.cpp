// cvt: between sizes, integers and floats.
#include <limits>
#include <utility>

#include "floats.h"

namespace interpreter {
namespace {

enum class Whole : u8 { none, nearest, zero, down, up };  // rounding to an integer

template <class F>
F whole(F x, Whole mode) {
  switch (mode) {
    case Whole::nearest:
      return std::nearbyint(x);
    case Whole::zero:
      return std::trunc(x);
    case Whole::down:
      return std::floor(x);
    case Whole::up:
      return std::ceil(x);
    default:
      return x;
  }
}

/// The value of an integer type nearest to x; NaN yields 0, or the top bit for 64 bits.
template <class I, class F>
I clamped(F x) {
  if (x != x) return sizeof(I) == 8 ? I(u64(1) << 63) : I(0);
  constexpr F top = F(std::numeric_limits<I>::max() / 2 + 1) * 2;  // one above the largest
  if (x >= top) return std::numeric_limits<I>::max();
  if (x <= F(std::numeric_limits<I>::min())) return std::numeric_limits<I>::min();
  return I(x);
}

struct Bf16 {
  u16 bits;
};

struct Mode {
  Whole integral = Whole::none;
  bool flush = false, saturate = false;
};
Mode mode_of(const Instruction& i) {
  return {Whole(i.target & 7), (i.target & 8) != 0, (i.target & 16) != 0};
}

template <class To, class From>
To converted(From from, Mode m) {
  if constexpr (std::is_same_v<From, Bf16>) {
    return converted<To>(from_bf16(from.bits), m);
  } else if constexpr (std::is_same_v<To, Bf16>) {
    return {to_bf16(float(from))};
  } else if constexpr (std::is_floating_point_v<From>) {
    if (m.flush) from = flushed(from);
    if constexpr (std::is_floating_point_v<To>) {
      To x = To(whole(from, m.integral));
      if (m.saturate) x = x > To(0) ? (x < To(1) ? x : To(1)) : To(0);
      return m.flush ? flushed(x) : x;
    } else {
      return clamped<To>(whole(from, m.integral));
    }
  } else if constexpr (std::is_floating_point_v<To>) {
    return To(from);
  } else if (m.saturate) {
    if (std::cmp_less(from, std::numeric_limits<To>::min())) return std::numeric_limits<To>::min();
    if (std::cmp_greater(from, std::numeric_limits<To>::max()))
      return std::numeric_limits<To>::max();
    return To(from);
  } else {
    return To(from);
  }
}

template <class F>
void with_register(int bytes, F&& f) {
  if (bytes == 2) return f(u16());
  return bytes == 4 ? f(u32()) : f(u64());
}

/// The bits of a value in a register: sign- or zero-extended.
template <class T>
u64 widened(T x) {
  if constexpr (std::is_same_v<T, Bf16>) {
    return x.bits;
  } else if constexpr (std::is_floating_point_v<T>) {
    return std::bit_cast<std::conditional_t<sizeof(T) == 4, u32, u64>>(x);
  } else {
    return u64(x);
  }
}
template <class T>
T narrowed(u64 bits) {
  if constexpr (std::is_same_v<T, Bf16>) {
    return {u16(bits)};
  } else if constexpr (std::is_same_v<T, float>) {
    return std::bit_cast<float>(u32(bits));
  } else if constexpr (std::is_same_v<T, double>) {
    return std::bit_cast<double>(bits);
  } else {
    return T(bits);
  }
}

template <class To, class From, Round r>
void convert(const Instruction& i, Warp& w, u32 mask) {
  const Mode m = mode_of(i);
  u64 value[32];
  with_register(i.bytes, [&](auto from) {  // the sizes of the two registers
    const auto* a = w.lane<decltype(from)>(i.s[0]);
    for (int l = 0; l < 32; ++l) value[l] = a[l];
  });
  rounded<r>([&] {
    for (int l = 0; l < 32; ++l) value[l] = widened(converted<To>(narrowed<From>(value[l]), m));
  });
  with_register(i.register_bytes, [&](auto to) {
    using R = decltype(to);
    each_lane<R>(w, i.d, mask, [&](int l) { return R(value[l]); });
  });
}

// The common conversions, as loops without a rounding mode.
template <class To, class From>
void simple(const Instruction& i, Warp& w, u32 mask) {
  const From* a = w.lane<From>(i.s[0]);
  each_lane<To>(w, i.d, mask, [&](int l) { return To(a[l]); });
}

template <class To, class From>
Handler with_rounding(const Statement& s) {
  constexpr bool rounds =
      std::is_floating_point_v<To> && !std::is_same_v<From, To> && !std::is_same_v<From, Bf16>;
  if constexpr (rounds) {
    if (s.has("rz")) return convert<To, From, Round::zero>;
    if (s.has("rm")) return convert<To, From, Round::down>;
    if (s.has("rp")) return convert<To, From, Round::up>;
  } else if (std::is_same_v<To, Bf16> && (s.has("rz") || s.has("relu"))) {
    return nullptr;
  }
  return convert<To, From, Round::nearest>;
}

template <class F>
Handler with_type(Type t, F&& f) {
  const bool is_signed = t.kind == 's';
  if (t.kind == 'h') return f(Bf16());
  if (t.kind == 'f') return t.bits == 32 ? f(float()) : f(double());
  if (t.kind != 's' && t.kind != 'u' && t.kind != 'b') return nullptr;
  if (t.bits == 8) return is_signed ? f(s8()) : f(u8());
  if (t.bits == 16) return is_signed ? f(s16()) : f(u16());
  if (t.bits == 32) return is_signed ? f(s32()) : f(u32());
  return is_signed ? f(s64()) : f(u64());
}

// cvt.rn.bf16x2.f32 d, a, b: a in the upper half.
void to_pair(const Instruction& i, Warp& w, u32 mask) {
  const float *a = w.lane<float>(i.s[0]), *b = w.lane<float>(i.s[1]);
  each_lane<u32>(w, i.d, mask,
                 [&](int l) { return u32(to_bf16(a[l])) << 16 | u32(to_bf16(b[l])); });
}
// cvt.rna.tf32.f32: ten bits of mantissa, ties away from zero.
void to_tf32(const Instruction& i, Warp& w, u32 mask) {
  const u32* a = w.lane<u32>(i.s[0]);
  each_lane<u32>(w, i.d, mask, [&](int l) {
    return (a[l] & 0x7f800000u) == 0x7f800000u ? a[l] : (a[l] + 0x1000u) & 0xffffe000u;
  });
}
// mov of bf16 to f32 is a shift: its own loop, as it is half of what bf16 kernels do.
void from_half(const Instruction& i, Warp& w, u32 mask) {
  const u16* a = w.lane<u16>(i.s[0]);
  each_lane<u32>(w, i.d, mask, [&](int l) { return u32(a[l]) << 16; });
}

}  // namespace

Handler convert_handler(const Statement& s, int to_bytes, int from_bytes) {
  if (s.op[0] != "cvt") return nullptr;
  const Type to = s.type(1), from = s.type(0);
  if (to == Type{'w', 32}) return s.has("rn") && !s.has("relu") ? to_pair : nullptr;
  if (to == Type{'t', 32}) return s.has("rna") ? to_tf32 : nullptr;
  if (to == Type{'f', 32} && from == Type{'h', 16} && to_bytes == 4 && from_bytes == 2)
    return from_half;
  auto integer = [](Type t) { return t.kind == 'u' || t.kind == 's'; };
  if (integer(to) && integer(from) && !s.has("sat")) {
    if (to.bits == 64 && from.bits == 32 && to_bytes == 8 && from_bytes == 4)
      return from.kind == 's' ? simple<s64, s32> : simple<u64, u32>;
    if (to.bits == 32 && from.bits == 64 && to_bytes == 4 && from_bytes == 8)
      return simple<u32, u64>;
    if (to.bits == 32 && from.bits == 16 && to_bytes == 4 && from_bytes == 2)
      return from.kind == 's' ? simple<s32, s16> : simple<u32, u16>;
  }
  return with_type(to, [&](auto t) {
    return with_type(from, [&](auto f) { return with_rounding<decltype(t), decltype(f)>(s); });
  });
}

}  // namespace interpreter
