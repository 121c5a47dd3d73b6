// Integers, bits, predicates, comparisons and moves.
#include <bit>
#include <cmath>

#include "warp.h"

namespace interpreter {
namespace {

template <class T>
using Unsigned = std::make_unsigned_t<T>;

// clang-format off
struct Add { template <class T> static T of(T a, T b) { return T(Unsigned<T>(a) + Unsigned<T>(b)); } };
struct Sub { template <class T> static T of(T a, T b) { return T(Unsigned<T>(a) - Unsigned<T>(b)); } };
struct Min { template <class T> static T of(T a, T b) { return a < b ? a : b; } };
struct Max { template <class T> static T of(T a, T b) { return a > b ? a : b; } };
struct And { template <class T> static T of(T a, T b) { return a & b; } };
struct Or { template <class T> static T of(T a, T b) { return a | b; } };
struct Xor { template <class T> static T of(T a, T b) { return a ^ b; } };
struct Not { template <class T> static T of(T a) { return T(~a); } };
struct Neg { template <class T> static T of(T a) { return T(0 - Unsigned<T>(a)); } };
struct Abs { template <class T> static T of(T a) { return a < 0 ? T(0 - Unsigned<T>(a)) : a; } };
struct Cnot { template <class T> static T of(T a) { return a == 0; } };
struct Reverse {
  template <class T> static T of(T a) { T r = 0; for (size_t i = 0; i < 8 * sizeof(T); ++i) r |= T((a >> i) & 1) << (8 * sizeof(T) - 1 - i); return r; }
};
// clang-format on

__extension__ using s128 = __int128;
__extension__ using u128 = unsigned __int128;
template <class S, class U, class T>
using Signed = std::conditional_t<std::is_signed_v<T>, S, U>;
template <class T>  // twice as many bits
using Wide = std::conditional_t<
    sizeof(T) == 2, Signed<s32, u32, T>,
    std::conditional_t<sizeof(T) == 4, Signed<s64, u64, T>, Signed<s128, u128, T>>>;

struct MulLo {
  template <class T>
  static T of(T a, T b) {
    return T(u64(a) * u64(b));
  }
};
struct MulHi {
  template <class T>
  static T of(T a, T b) {
    return T((Wide<T>(a) * Wide<T>(b)) >> (8 * sizeof(T)));
  }
};
struct MadLo {
  template <class T>
  static T of(T a, T b, T c) {
    return T(u64(a) * u64(b) + u64(c));
  }
};
struct MadHi {
  template <class T>
  static T of(T a, T b, T c) {
    return Add::of(MulHi::of(a, b), c);
  }
};
// Division by zero yields all ones; the smallest integer by −1 yields itself. A CPU would trap.
struct Div {
  template <class T>
  static T of(T a, T b) {
    if (b == 0) return T(~T(0));
    if (std::is_signed_v<T> && b == T(-1)) return Neg::of(a);
    return T(a / b);
  }
};
struct Rem {
  template <class T>
  static T of(T a, T b) {
    if (b == 0) return a;
    if (std::is_signed_v<T> && b == T(-1)) return 0;
    return T(a % b);
  }
};

template <class Op, class T>
void apply(const Instruction& i, Warp& w, u32 mask) {
  const T *a = w.lane<T>(i.s[0]), *b = w.lane<T>(i.s[1]), *c = w.lane<T>(i.s[2]);
  each_lane<T>(w, i.d, mask, [&](int l) {
    if constexpr (requires(T x) { Op::of(x, x, x); }) {
      return Op::of(a[l], b[l], c[l]);
    } else if constexpr (requires(T x) { Op::of(x, x); }) {
      return Op::of(a[l], b[l]);
    } else {
      return Op::of(a[l]);
    }
  });
}

template <class Op>
Handler with_type(const Statement& s) {
  const Type t = s.type();
  const bool is_signed = t.kind == 's';
  if (t.kind != 's' && t.kind != 'u' && t.kind != 'b') return nullptr;
  switch (t.bits) {
    case 16:
      return is_signed ? apply<Op, s16> : apply<Op, u16>;
    case 32:
      return is_signed ? apply<Op, s32> : apply<Op, u32>;
    case 64:
      return is_signed ? apply<Op, s64> : apply<Op, u64>;
    default:
      return nullptr;
  }
}

template <class T, bool adds>
void wide(const Instruction& i, Warp& w, u32 mask) {
  using W = Wide<T>;
  const T *a = w.lane<T>(i.s[0]), *b = w.lane<T>(i.s[1]);
  const W* c = w.lane<W>(i.s[2]);
  each_lane<W>(w, i.d, mask, [&](int l) {
    const W product = W(W(a[l]) * W(b[l]));
    return adds ? Add::of(product, c[l]) : product;
  });
}
template <bool adds>
Handler wide_with_type(const Statement& s) {
  const Type t = s.type();
  if (t.bits == 16) return t.kind == 's' ? wide<s16, adds> : wide<u16, adds>;
  if (t.bits == 32) return t.kind == 's' ? wide<s32, adds> : wide<u32, adds>;
  return nullptr;
}

// Shifts by at least the width yield zeros, or copies of the sign.
template <class T, bool left>
void shift(const Instruction& i, Warp& w, u32 mask) {
  constexpr u32 bits = 8 * sizeof(T);
  const T* a = w.lane<T>(i.s[0]);
  const u32* by = w.lane<u32>(i.s[1]);
  each_lane<T>(w, i.d, mask, [&](int l) -> T {
    const u32 n = by[l] < bits ? by[l] : bits - 1;
    if (left) return by[l] < bits ? T(Unsigned<T>(a[l]) << n) : T(0);
    const T moved = T(a[l] >> n);
    return by[l] < bits || std::is_signed_v<T> ? moved : T(0);
  });
}
template <bool left>
Handler shift_with_type(const Statement& s) {
  const Type t = s.type();
  const bool is_signed = t.kind == 's';
  if (t.bits == 16) return is_signed ? shift<s16, left> : shift<u16, left>;
  if (t.bits == 32) return is_signed ? shift<s32, left> : shift<u32, left>;
  return is_signed ? shift<s64, left> : shift<u64, left>;
}
template <bool left, bool wraps>
void funnel(const Instruction& i, Warp& w, u32 mask) {
  const u32 *a = w.lane<u32>(i.s[0]), *b = w.lane<u32>(i.s[1]), *c = w.lane<u32>(i.s[2]);
  each_lane<u32>(w, i.d, mask, [&](int l) {
    const u32 n = wraps ? c[l] & 31 : std::min(c[l], 32u);
    const u64 both = u64(b[l]) << 32 | a[l];
    return left ? u32(both << n >> 32) : u32(both >> n);
  });
}

// Carries of add.cc and the like: one bit per lane, in a register of its own (s[3]).
template <class T, bool reads, bool leaves, bool subtracts>
void carry(const Instruction& i, Warp& w, u32 mask) {
  const T *a = w.lane<T>(i.s[0]), *b = w.lane<T>(i.s[1]);
  const u32 before = reads ? w.mask(i.s[3]) : 0;
  u32 after = 0;
  T value[32];
  for (int l = 0; l < 32; ++l) {
    const T c = (before >> l) & 1;
    if (subtracts) {
      value[l] = T(a[l] - b[l] - c);
      after |= u32(b[l] > a[l] || (b[l] == a[l] && c)) << l;
    } else {
      value[l] = T(a[l] + b[l] + c);
      after |= u32(value[l] < a[l] || (c && value[l] == a[l])) << l;
    }
  }
  each_lane<T>(w, i.d, mask, [&](int l) { return value[l]; });
  if (leaves) set_predicate(w, i.s[3], mask, after);
}
template <class T, bool reads, bool leaves, bool high>
void mad_carry(const Instruction& i, Warp& w, u32 mask) {
  const T *a = w.lane<T>(i.s[0]), *b = w.lane<T>(i.s[1]), *c = w.lane<T>(i.s[2]);
  const u32 before = reads ? w.mask(i.s[3]) : 0;
  u32 after = 0;
  T value[32];
  for (int l = 0; l < 32; ++l) {
    const T product = high ? MulHi::of(a[l], b[l]) : MulLo::of(a[l], b[l]);
    const T one = (before >> l) & 1, sum = T(product + c[l]);
    value[l] = T(sum + one);
    after |= u32(sum < product || value[l] < sum) << l;
  }
  each_lane<T>(w, i.d, mask, [&](int l) { return value[l]; });
  if (leaves) set_predicate(w, i.s[3], mask, after);
}
Handler carry_handler(const Statement& s) {
  const std::string& op = s.op[0];
  const bool reads = op == "addc" || op == "subc" || op == "madc", leaves = s.has("cc");
  const bool is64 = s.type().bits == 64, sub = op[0] == 's', high = s.has("hi");
  if (!reads && !leaves) return nullptr;
  auto choose = [&](auto r, auto c) -> Handler {
    constexpr bool R = r.value, C = c.value;
    if (op[0] == 'm') {
      if (is64) return high ? mad_carry<u64, R, C, true> : mad_carry<u64, R, C, false>;
      return high ? mad_carry<u32, R, C, true> : mad_carry<u32, R, C, false>;
    }
    if (is64) return sub ? carry<u64, R, C, true> : carry<u64, R, C, false>;
    return sub ? carry<u32, R, C, true> : carry<u32, R, C, false>;
  };
  constexpr std::true_type yes;
  constexpr std::false_type no;
  return reads ? leaves ? choose(yes, yes) : choose(yes, no) : choose(no, yes);
}

// Comparisons. An unordered one ("ltu") is also true if an operand is NaN.
enum Compare { eq, ne, lt, le, gt, ge, equ, neu, ltu, leu, gtu, geu, num, nan };

template <class T, Compare c>
bool holds(T a, T b) {
  const bool ordered = a == a && b == b;
  if constexpr (c == eq) return a == b;
  if constexpr (c == ne) return ordered && a != b;
  if constexpr (c == lt) return a < b;
  if constexpr (c == le) return a <= b;
  if constexpr (c == gt) return a > b;
  if constexpr (c == ge) return a >= b;
  if constexpr (c == equ) return !ordered || a == b;
  if constexpr (c == neu) return a != b;
  if constexpr (c == ltu) return !(a >= b);
  if constexpr (c == leu) return !(a > b);
  if constexpr (c == gtu) return !(a <= b);
  if constexpr (c == geu) return !(a < b);
  return c == num ? ordered : !ordered;
}

// setp: s[2] a predicate to combine with by and, or, xor (target 1, 2, 3; 0: none).
template <class T, Compare c>
void compare(const Instruction& i, Warp& w, u32 mask) {
  const T *a = w.lane<T>(i.s[0]), *b = w.lane<T>(i.s[1]);
  const u32 test = lanes_where([&](int l) { return holds<T, c>(a[l], b[l]); });
  const u32 with = i.target ? w.mask(i.s[2]) ^ u32(i.offset) : 0;
  auto combined = [&](u32 t) {
    return i.target == 0 ? t : i.target == 1 ? t & with : i.target == 2 ? t | with : t ^ with;
  };
  set_predicate(w, i.d, mask, combined(test));
  if (i.count == 2) set_predicate(w, i.list[1], mask, combined(~test));
}
template <class T, Compare c>
void set(const Instruction& i, Warp& w, u32 mask) {  // set.lt.u32.T: all ones if true
  const T *a = w.lane<T>(i.s[0]), *b = w.lane<T>(i.s[1]);
  each_lane<u32>(w, i.d, mask, [&](int l) { return holds<T, c>(a[l], b[l]) ? ~0u : 0u; });
}

template <class T>
Handler comparison(const Statement& s) {
  static const std::map<std::string, Compare> names = {
      {"eq", eq},   {"ne", ne},   {"lt", lt},   {"le", le},   {"gt", gt},   {"ge", ge},
      {"lo", lt},   {"ls", le},   {"hi", gt},   {"hs", ge},   {"equ", equ}, {"neu", neu},
      {"ltu", ltu}, {"leu", leu}, {"gtu", gtu}, {"geu", geu}, {"num", num}, {"nan", nan}};
  static constexpr auto table = []<size_t... c>(std::index_sequence<c...>) {
    return std::array<std::array<Handler, 2>, 14>{
        {{compare<T, Compare(c)>, set<T, Compare(c)>}...}};
  }
  (std::make_index_sequence<14>());
  const auto it = names.find(s.op.at(1));
  if (it == names.end()) return nullptr;
  return table[size_t(it->second)][s.op[0] == "set"];
}

Handler comparison_handler(const Statement& s) {
  const Type t = s.type();
  if (s.op[0] == "set" && s.type(1).bits != 32) return nullptr;
  if (t.kind == 'f') return t.bits == 32 ? comparison<float>(s) : comparison<double>(s);
  if (t.kind != 's' && t.kind != 'u' && t.kind != 'b') return nullptr;
  if (t.bits == 16) return t.kind == 's' ? comparison<s16>(s) : comparison<u16>(s);
  if (t.bits == 32) return t.kind == 's' ? comparison<s32>(s) : comparison<u32>(s);
  return t.kind == 's' ? comparison<s64>(s) : comparison<u64>(s);
}

template <class T>
void select(const Instruction& i, Warp& w, u32 mask) {
  const T *a = w.lane<T>(i.s[0]), *b = w.lane<T>(i.s[1]);
  const u32 p = w.mask(i.s[2]) ^ u32(i.offset);
  each_lane<T>(w, i.d, mask, [&](int l) { return (p >> l) & 1 ? a[l] : b[l]; });
  const u32 set = (p & w.valid[i.valid_list[1]]) | (~p & w.valid[i.valid_list[2]]);
  u32& valid = w.valid[i.valid_list[0]];
  valid = (valid & ~mask) | (mask & set & w.valid[i.valid_s[2]]);
}

template <int op>  // of predicates: and, or, xor, not, mov; a source may be negated
void predicates(const Instruction& i, Warp& w, u32 mask) {
  const u32 a = w.mask(i.s[0]) ^ u32(i.offset), b = w.mask(i.s[1]) ^ u32(i.offset >> 32);
  set_predicate(w, i.d, mask,
                op == 0   ? a & b
                : op == 1 ? a | b
                : op == 2 ? a ^ b
                : op == 3 ? ~a
                          : a);
}

template <class T>
void move(const Instruction& i, Warp& w, u32 mask) {
  const T* a = w.lane<T>(i.s[0]);
  each_lane<T>(w, i.d, mask, [&](int l) { return a[l]; });
}
// mov between one register and the list of its parts.
template <class W, class T>
void pack(const Instruction& i, Warp& w, u32 mask) {
  each_lane<W>(w, i.d, mask, [&](int l) {
    W value = 0;
    for (int p = 0; p < i.count; ++p) value |= W(W(w.lane<T>(i.list[p])[l]) << (8 * sizeof(T) * p));
    return value;
  });
}
template <class W, class T>
void unpack(const Instruction& i, Warp& w, u32 mask) {
  W from[32];
  std::memcpy(from, w.lane<W>(i.s[0]), sizeof from);
  for (int p = 0; p < i.count; ++p)
    if (i.list[p])
      each_lane<T>(w, i.list[p], mask, [&](int l) { return T(from[l] >> (8 * sizeof(T) * p)); });
}
Handler move_handler(const Statement& s) {
  const int bits = s.type().bits;
  auto parts = [&](const Operand& o) { return int(o.parts.size()); };
  if (s.operands.at(1).kind == Operand::list) {
    if (bits == 32) return pack<u32, u16>;
    return parts(s.operands[1]) == 2 ? pack<u64, u32> : pack<u64, u16>;
  }
  if (s.operands[0].kind == Operand::list) {
    if (bits == 32) return unpack<u32, u16>;
    return parts(s.operands[0]) == 2 ? unpack<u64, u32> : unpack<u64, u16>;
  }
  return bits == 16 ? move<u16> : bits == 32 ? move<u32> : bits == 64 ? move<u64> : nullptr;
}

void permute(const Instruction& i, Warp& w, u32 mask) {
  const u32 *a = w.lane<u32>(i.s[0]), *b = w.lane<u32>(i.s[1]), *c = w.lane<u32>(i.s[2]);
  each_lane<u32>(w, i.d, mask, [&](int l) {
    const u64 all = u64(b[l]) << 32 | a[l];
    u32 r = 0;
    for (int k = 0; k < 4; ++k) {
      const u32 which = c[l] >> (4 * k);
      u32 byte = u32(all >> (8 * (which & 7))) & 0xff;
      if (which & 8) byte = byte & 0x80 ? 0xff : 0;
      r |= byte << (8 * k);
    }
    return r;
  });
}
template <class T>
void insert(const Instruction& i, Warp& w, u32 mask) {
  constexpr u32 bits = 8 * sizeof(T);
  const T *a = w.lane<T>(i.s[0]), *b = w.lane<T>(i.s[1]);
  const u32 *at = w.lane<u32>(i.s[2]), *length = w.lane<u32>(i.s[3]);
  each_lane<T>(w, i.d, mask, [&](int l) -> T {
    const u32 p = at[l] & 255, n = length[l] & 255;
    if (p >= bits || n == 0) return b[l];
    const T field = T((n >= bits ? ~T(0) : T((T(1) << n) - 1)) << p);
    return T((b[l] & ~field) | (T(a[l] << p) & field));
  });
}
template <class T>
void extract(const Instruction& i, Warp& w, u32 mask) {
  constexpr u32 bits = 8 * sizeof(T);
  const T* a = w.lane<T>(i.s[0]);
  const u32 *at = w.lane<u32>(i.s[1]), *length = w.lane<u32>(i.s[2]);
  each_lane<T>(w, i.d, mask, [&](int l) {
    const u32 p = at[l] & 255, n = length[l] & 255;
    const bool sign = std::is_signed_v<T> && n && ((a[l] >> std::min(p + n - 1, bits - 1)) & 1);
    Unsigned<T> r = 0;
    for (u32 k = 0; k < bits; ++k)
      r |= Unsigned<T>(k < n && p + k < bits ? (a[l] >> (p + k)) & 1 : sign) << k;
    return T(r);
  });
}
template <class T, int what>  // popc, clz, bfind and bfind.shiftamt of T: a 32-bit result
void count(const Instruction& i, Warp& w, u32 mask) {
  const T* a = w.lane<T>(i.s[0]);
  each_lane<u32>(w, i.d, mask, [&](int l) -> u32 {
    if (what == 0) return u32(std::popcount(Unsigned<T>(a[l])));
    if (what == 1) return u32(std::countl_zero(Unsigned<T>(a[l])));
    const Unsigned<T> v = Unsigned<T>(std::is_signed_v<T> && a[l] < 0 ? ~a[l] : a[l]);
    if (what == 3) return v ? u32(std::countl_zero(v)) : ~0u;
    return u32(8 * int(sizeof(T)) - 1 - std::countl_zero(v));
  });
}
void lookup(const Instruction& i, Warp& w, u32 mask) {  // lop3: any function of three bits
  const u32 *a = w.lane<u32>(i.s[0]), *b = w.lane<u32>(i.s[1]), *c = w.lane<u32>(i.s[2]);
  const u32 f = *w.lane<u32>(i.s[3]);
  each_lane<u32>(w, i.d, mask, [&](int l) {
    u32 r = 0;
    for (u32 k = 0; k < 8; ++k)
      if ((f >> k) & 1)
        r |= (k & 4 ? a[l] : ~a[l]) & (k & 2 ? b[l] : ~b[l]) & (k & 1 ? c[l] : ~c[l]);
    return r;
  });
}

}  // namespace

Handler integer_handler(const Statement& s) {
  const std::string& op = s.op[0];
  const Type t = s.type();
  const bool is64 = t.bits == 64, is_signed = t.kind == 's';
  if (t.kind == 'p') {
    constexpr const char* names[] = {"and", "or", "xor", "not", "mov"};
    constexpr Handler handlers[] = {predicates<0>, predicates<1>, predicates<2>, predicates<3>,
                                    predicates<4>};
    for (int k = 0; k < 5; ++k)
      if (op == names[k]) return handlers[k];
    return nullptr;
  }
  if (const Handler h = carry_handler(s)) return h;
  if (op == "add") return with_type<Add>(s);
  if (op == "sub") return with_type<Sub>(s);
  if (op == "mul" && s.has("wide")) return wide_with_type<false>(s);
  if (op == "mad" && s.has("wide")) return wide_with_type<true>(s);
  if (op == "mul") return s.has("hi") ? with_type<MulHi>(s) : with_type<MulLo>(s);
  if (op == "mad") return s.has("hi") ? with_type<MadHi>(s) : with_type<MadLo>(s);
  if (op == "div") return with_type<Div>(s);
  if (op == "rem") return with_type<Rem>(s);
  if (op == "min") return with_type<Min>(s);
  if (op == "max") return with_type<Max>(s);
  if (op == "neg") return with_type<Neg>(s);
  if (op == "abs") return with_type<Abs>(s);
  if (op == "not") return with_type<Not>(s);
  if (op == "cnot") return with_type<Cnot>(s);
  if (op == "and") return with_type<And>(s);
  if (op == "or") return with_type<Or>(s);
  if (op == "xor") return with_type<Xor>(s);
  if (op == "brev") return is64 ? apply<Reverse, u64> : apply<Reverse, u32>;
  if (op == "shl") return shift_with_type<true>(s);
  if (op == "shr") return shift_with_type<false>(s);
  if (op == "shf" && s.has("l")) return s.has("wrap") ? funnel<true, true> : funnel<true, false>;
  if (op == "shf") return s.has("wrap") ? funnel<false, true> : funnel<false, false>;
  if (op == "setp" || op == "set") return comparison_handler(s);
  if (op == "selp") return t.bits == 16 ? select<u16> : is64 ? select<u64> : select<u32>;
  if (op == "mov") return move_handler(s);
  if (op == "prmt" && s.op.size() == 2) return permute;
  if (op == "bfi") return is64 ? insert<u64> : insert<u32>;
  if (op == "bfe" && is64) return is_signed ? extract<s64> : extract<u64>;
  if (op == "bfe") return is_signed ? extract<s32> : extract<u32>;
  if (op == "popc") return is64 ? count<u64, 0> : count<u32, 0>;
  if (op == "clz") return is64 ? count<u64, 1> : count<u32, 1>;
  auto find = [&]<int what>(std::integral_constant<int, what>) -> Handler {
    if (is64) return is_signed ? count<s64, what> : count<u64, what>;
    return is_signed ? count<s32, what> : count<u32, what>;
  };
  if (op == "bfind")
    return s.has("shiftamt") ? find(std::integral_constant<int, 3>())
                             : find(std::integral_constant<int, 2>());
  if (op == "lop3") return lookup;
  return nullptr;
}

}  // namespace interpreter
