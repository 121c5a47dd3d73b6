// Floating-point arithmetic, for 32 lanes at a time.
#include "floats.h"

namespace interpreter {
namespace {

/// 2^x to within an ulp of f32, in f64: n + f, a polynomial in f, n into the exponent.
inline float exp2_of(float x) {
  const double c = x < -200.0f ? -200.0 : x > 200.0f ? 200.0 : double(x);
  const double n = std::nearbyint(c), f = (c - n) * 0.69314718055994530942;
  double p = 1.0 / 3628800;
  p = p * f + 1.0 / 362880;
  p = p * f + 1.0 / 40320;
  p = p * f + 1.0 / 5040;
  p = p * f + 1.0 / 720;
  p = p * f + 1.0 / 120;
  p = p * f + 1.0 / 24;
  p = p * f + 1.0 / 6;
  p = p * f + 0.5;
  p = p * f + 1;
  p = p * f + 1;
  const double scale = std::bit_cast<double>(u64(s64(n) + 1023) << 52);
  return x != x ? x : float(p * scale);
}

template <class T>
T smaller(T a, T b, bool nan) {
  if (a != a || b != b) return nan ? std::numeric_limits<T>::quiet_NaN() : a != a ? b : a;
  if (a == b) return std::signbit(a) ? a : b;
  return a < b ? a : b;
}
template <class T>
T larger(T a, T b, bool nan) {
  if (a != a || b != b) return nan ? std::numeric_limits<T>::quiet_NaN() : a != a ? b : a;
  if (a == b) return std::signbit(a) ? b : a;
  return a > b ? a : b;
}

// clang-format off
struct Add { template <class T> static T of(T a, T b) { return a + b; } };
struct Sub { template <class T> static T of(T a, T b) { return a - b; } };
struct Mul { template <class T> static T of(T a, T b) { return a * b; } };
struct Div { template <class T> static T of(T a, T b) { return a / b; } };
struct Min { template <class T> static T of(T a, T b) { return smaller(a, b, false); } };
struct Max { template <class T> static T of(T a, T b) { return larger(a, b, false); } };
struct MinNan { template <class T> static T of(T a, T b) { return smaller(a, b, true); } };
struct MaxNan { template <class T> static T of(T a, T b) { return larger(a, b, true); } };
struct Copysign { template <class T> static T of(T a, T b) { return std::copysign(b, a); } };
struct Fma { template <class T> static T of(T a, T b, T c) { return std::fma(a, b, c); } };
struct Fms { template <class T> static T of(T a, T b, T c) { return std::fma(a, b, -c); } };
struct Fnma { template <class T> static T of(T a, T b, T c) { return std::fma(-a, b, c); } };
struct Neg { template <class T> static T of(T a) { return -a; } };
struct Abs { template <class T> static T of(T a) { return std::abs(a); } };
struct Reciprocal { template <class T> static T of(T a) { return T(1) / a; } };
struct Sqrt { template <class T> static T of(T a) { return std::sqrt(a); } };
struct Rsqrt { template <class T> static T of(T a) { return T(1 / std::sqrt(double(a))); } };
struct Exp2 { static float of(float a) { return exp2_of(a); } };
struct Log2 { static float of(float a) { return std::log2(a); } };
struct Sin { static float of(float a) { return std::sin(a); } };
struct Cos { static float of(float a) { return std::cos(a); } };
struct Tanh { static float of(float a) { return std::tanh(a); } };
// clang-format on

struct Plain {  // modifiers of operands and result
  static constexpr bool flush = false, saturate = false;
};
struct Flush {
  static constexpr bool flush = true, saturate = false;
};
struct Saturate {
  static constexpr bool flush = false, saturate = true;
};

template <class M, class T>
inline T in(T x) {
  return M::flush ? flushed(x) : x;
}
template <class M, class T>
inline T out(T x) {
  if constexpr (M::saturate) return x > T(0) ? (x < T(1) ? x : T(1)) : T(0);  // NaN becomes 0
  return M::flush ? flushed(x) : x;
}

template <class Op, class T, class M, Round r>
void unary(const Instruction& i, Warp& w, u32 mask) {
  const T* a = w.lane<T>(i.s[0]);
  rounded<r>(
      [&] { each_lane<T>(w, i.d, mask, [&](int l) { return out<M>(Op::of(in<M>(a[l]))); }); });
}
template <class Op, class T, class M, Round r>
void binary(const Instruction& i, Warp& w, u32 mask) {
  const T *a = w.lane<T>(i.s[0]), *b = w.lane<T>(i.s[1]);
  rounded<r>([&] {
    each_lane<T>(w, i.d, mask, [&](int l) { return out<M>(Op::of(in<M>(a[l]), in<M>(b[l]))); });
  });
}
template <class Op, class T, class M, Round r>
void ternary(const Instruction& i, Warp& w, u32 mask) {
  const T *a = w.lane<T>(i.s[0]), *b = w.lane<T>(i.s[1]), *c = w.lane<T>(i.s[2]);
  rounded<r>([&] {
    each_lane<T>(w, i.d, mask,
                 [&](int l) { return out<M>(Op::of(in<M>(a[l]), in<M>(b[l]), in<M>(c[l]))); });
  });
}

template <class Op, class T, class M, Round r>
constexpr Handler handler() {
  if constexpr (requires(T x) { Op::of(x, x, x); }) {
    return ternary<Op, T, M, r>;
  } else if constexpr (requires(T x) { Op::of(x, x); }) {
    return binary<Op, T, M, r>;
  } else {
    return unary<Op, T, M, r>;
  }
}

template <class Op, class T, Round r>
Handler with_mode(const Statement& s) {
  if (s.has("sat")) return handler<Op, T, Saturate, r>();
  return s.has("ftz") ? handler<Op, T, Flush, r>() : handler<Op, T, Plain, r>();
}

template <class Op>
Handler with_type(const Statement& s) {
  const Type t = s.type();
  if (t.kind != 'f') return nullptr;
  const bool rn = !s.has("rz") && !s.has("rm") && !s.has("rp");
  if (t.bits == 32) {
    if (rn) return with_mode<Op, float, Round::nearest>(s);
    if (s.has("rz")) return with_mode<Op, float, Round::zero>(s);
    if (s.has("rm")) return with_mode<Op, float, Round::down>(s);
    return with_mode<Op, float, Round::up>(s);
  }
  if (rn) return handler<Op, double, Plain, Round::nearest>();
  if (s.has("rz")) return handler<Op, double, Plain, Round::zero>();
  if (s.has("rm")) return handler<Op, double, Plain, Round::down>();
  return handler<Op, double, Plain, Round::up>();
}

/// Functions of the special function unit: f32, and a few in f64 with f32's precision.
template <class Op>
Handler approximate(const Statement& s) {
  if (s.type() == Type{'f', 32})
    return s.has("ftz") ? handler<Op, float, Flush, Round::nearest>()
                        : handler<Op, float, Plain, Round::nearest>();
  if constexpr (requires(double x) { requires std::same_as<decltype(Op::of(x)), double>; }) {
    if (s.type() == Type{'f', 64}) return handler<Op, double, Plain, Round::nearest>();
  }
  return nullptr;
}

// bf16 and bf16x2: each half in f32, rounded once; fma is exact before the rounding.
template <class Op, int halves>
void bf16(const Instruction& i, Warp& w, u32 mask) {
  using T = std::conditional_t<halves == 2, u32, u16>;
  const T *a = w.lane<T>(i.s[0]), *b = w.lane<T>(i.s[1]), *c = w.lane<T>(i.s[2]);
  each_lane<T>(w, i.d, mask, [&](int l) {
    T result = 0;
    for (int h = 0; h < halves; ++h) {
      const float x = from_bf16(u16(a[l] >> (16 * h)));
      float y;
      if constexpr (requires { Op::of(x, x, x); }) {
        y = float(Op::of(double(x), double(from_bf16(u16(b[l] >> (16 * h)))),
                         double(from_bf16(u16(c[l] >> (16 * h))))));
      } else if constexpr (requires { Op::of(x, x); }) {
        y = Op::of(x, from_bf16(u16(b[l] >> (16 * h))));
      } else {
        y = Op::of(x);
      }
      result = T(result | T(T(to_bf16(y)) << (16 * h)));
    }
    return result;
  });
}
template <class Op>
Handler with_any_type(const Statement& s) {
  if (s.type() == Type{'h', 16}) return bf16<Op, 1>;
  if (s.type() == Type{'w', 32}) return bf16<Op, 2>;
  return with_type<Op>(s);
}

}  // namespace

Handler arithmetic_handler(const Statement& s) {
  const std::string& op = s.op[0];
  if (op == "add") return with_any_type<Add>(s);
  if (op == "sub") return with_any_type<Sub>(s);
  if (op == "mul") return with_any_type<Mul>(s);
  if (op == "div") return with_type<Div>(s);
  if (op == "fma" || (op == "mad" && s.type().kind == 'f')) return with_any_type<Fma>(s);
  if (op == "fms") return with_type<Fms>(s);  // of contract()
  if (op == "fnma") return with_type<Fnma>(s);
  if (op == "min") return s.has("NaN") ? with_any_type<MinNan>(s) : with_any_type<Min>(s);
  if (op == "max") return s.has("NaN") ? with_any_type<MaxNan>(s) : with_any_type<Max>(s);
  if (op == "neg") return with_any_type<Neg>(s);
  if (op == "abs") return with_any_type<Abs>(s);
  if (op == "copysign") return with_type<Copysign>(s);
  if (op == "rcp") return s.has("approx") ? approximate<Reciprocal>(s) : with_type<Reciprocal>(s);
  if (op == "sqrt") return s.has("approx") ? approximate<Sqrt>(s) : with_type<Sqrt>(s);
  if (op == "rsqrt") return approximate<Rsqrt>(s);
  if (op == "ex2") return approximate<Exp2>(s);
  if (op == "lg2") return approximate<Log2>(s);
  if (op == "sin") return approximate<Sin>(s);
  if (op == "cos") return approximate<Cos>(s);
  if (op == "tanh") return approximate<Tanh>(s);
  return nullptr;
}

}  // namespace interpreter
