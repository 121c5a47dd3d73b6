// Loads, stores, address conversions and atomics.
#include <algorithm>

#include "access.h"

namespace interpreter {
namespace {

/// i.s[0]: the base register, of i.count bytes (8, or 4 for the address of shared memory).
void addresses(const Instruction& i, Warp& w, u32 mask, u64 (&to)[32]) {
  const u32 valid = w.valid[i.valid_s[0]];
  if ((valid & mask) != mask) [[unlikely]]
    w.block->fail(i, w, __builtin_ctz(mask & ~valid), "unset: an address that was never set");
  if (i.count == 4) {
    const u32* base = w.lane<u32>(i.s[0]);
    for (int l = 0; l < 32; ++l) to[l] = u64(base[l]) + u64(i.offset);
  } else {
    const u64* base = w.lane<u64>(i.s[0]);
    for (int l = 0; l < 32; ++l) to[l] = base[l] + u64(i.offset);
  }
}

/// The lanes of a generic access may access different spaces: one call for each.
template <class F>
void by_space(const Instruction& i, u32 mask, const u64 (&to)[32], F&& f) {
  if (i.space != Space::generic) return f(mask);
  while (mask) {
    const u64 window = to[__builtin_ctz(mask)] & window_mask;
    u32 same = 0;
    for_lanes(mask, [&](int l) { same |= u32((to[l] & window_mask) == window) << l; });
    f(same);
    mask &= ~same;
  }
}

// T: an item in memory; R: a register. i.list: the registers of a vector.
template <class T, class R>
void load(const Instruction& i, Warp& w, u32 mask) {
  u64 to[32];
  addresses(i, w, mask, to);
  by_space(i, mask, to, [&](u32 part) {
    const Access a = resolve(i, w, i.space, to, part, u32(sizeof(T) * i.target));
    check_read(i, w, a);
    for (int k = 0; k < i.target; ++k) {
      if (!i.list[k]) continue;
      T item[32];
      if (a.contiguous && i.target == 1) {
        std::memcpy(item, a.bytes + a.at[0], sizeof item);
      } else if (a.uniform) {
        T one;
        std::memcpy(&one, a.bytes + a.at[0] + size_t(k) * sizeof(T), sizeof(T));
        std::fill(item, item + 32, one);
      } else {
        for (int l = 0; l < 32; ++l)
          std::memcpy(&item[l], a.bytes + a.at[l] + size_t(k) * sizeof(T), sizeof(T));
      }
      each_lane<R>(w, i.list[k], part, [&](int l) { return R(item[l]); });
      w.valid[i.valid_list[k]] |= part;
    }
  });
}

template <class T, class R>
void store(const Instruction& i, Warp& w, u32 mask) {
  u64 to[32];
  addresses(i, w, mask, to);
  for (int k = 0; k < i.target; ++k) {
    const u32 valid = w.valid[i.valid_list[k]];
    if ((valid & mask) != mask) [[unlikely]]
      w.block->fail(i, w, __builtin_ctz(mask & ~valid), "unset: a store of what was never set");
  }
  by_space(i, mask, to, [&](u32 part) {
    const Access a = resolve(i, w, i.space, to, part, u32(sizeof(T) * i.target));
    check_write(i, w, a);
    for (int k = 0; k < i.target; ++k) {
      const R* from = w.lane<R>(i.list[k]);
      T item[32];
      for (int l = 0; l < 32; ++l) item[l] = T(from[l]);
      if (a.contiguous && i.target == 1) {
        std::memcpy(a.bytes + a.at[0], item, sizeof item);
      } else {
        for_lanes(part, [&](int l) {
          std::memcpy(a.bytes + a.at[l] + size_t(k) * sizeof(T), &item[l], sizeof(T));
        });
      }
    }
  });
}

template <class T>
Handler with_register(const Instruction& i, bool is_signed) {
  auto choose = [&](auto item, auto reg) -> Handler {
    using I = decltype(item);
    using R = decltype(reg);
    if constexpr (sizeof(I) > sizeof(R)) return nullptr;
    return i.writes ? store<I, R> : load<I, R>;
  };
  using S = std::make_signed_t<T>;
  if (is_signed && !i.writes) {
    if (i.register_bytes == 2) return choose(S(), u16());
    return i.register_bytes == 4 ? choose(S(), u32()) : choose(S(), u64());
  }
  if (i.register_bytes == 2) return choose(T(), u16());
  return i.register_bytes == 4 ? choose(T(), u32()) : choose(T(), u64());
}

template <s64 sign>
void move_window(const Instruction& i, Warp& w, u32 mask) {
  const u64* a = w.lane<u64>(i.s[0]);
  each_lane<u64>(w, i.d, mask, [&](int l) { return a[l] + u64(sign * i.offset); });
}

enum Atomic { add, min, max, bit_and, bit_or, bit_xor, exch, cas, inc, dec };

// s[1], s[2]: operands. d: the previous value, 0 for red. One lane after the other.
template <class T, Atomic op>
void atomic(const Instruction& i, Warp& w, u32 mask) {
  u64 to[32];
  addresses(i, w, mask, to);
  by_space(i, mask, to, [&](u32 part) {
    const Access a = resolve(i, w, i.space, to, part, sizeof(T));
    check_atomic(i, w, a);
    const T *x = w.lane<T>(i.s[1]), *y = w.lane<T>(i.s[2]);
    for_lanes(part, [&](int l) {
      T old, now;
      std::memcpy(&old, a.bytes + a.at[l], sizeof(T));
      switch (op) {
        case add:
          now = T(std::make_unsigned_t<T>(old) + std::make_unsigned_t<T>(x[l]));
          break;
        case min:
          now = old < x[l] ? old : x[l];
          break;
        case max:
          now = old > x[l] ? old : x[l];
          break;
        case bit_and:
          now = old & x[l];
          break;
        case bit_or:
          now = old | x[l];
          break;
        case bit_xor:
          now = old ^ x[l];
          break;
        case exch:
          now = x[l];
          break;
        case cas:
          now = old == x[l] ? y[l] : old;
          break;
        case inc:
          now = old >= x[l] ? T(0) : T(old + 1);
          break;
        default:
          now = old == 0 || old > x[l] ? x[l] : T(old - 1);
      }
      if (i.d) w.lane<T>(i.d)[l] = old;
      std::memcpy(a.bytes + a.at[l], &now, sizeof(T));
    });
  });
}

Handler atomic_handler(const Statement& s) {
  static const std::map<std::string, Atomic> names = {
      {"add", add},     {"min", min},   {"max", max}, {"and", bit_and}, {"or", bit_or},
      {"xor", bit_xor}, {"exch", exch}, {"cas", cas}, {"inc", inc},     {"dec", dec}};
  const Type t = s.type();
  for (const auto& [name, op] : names) {
    if (!s.has(name)) continue;
    auto choose = [&]<size_t... k>(std::index_sequence<k...>, auto tag) {
      using T = decltype(tag);
      const Handler all[] = {atomic<T, Atomic(k)>...};
      return all[op];
    };
    constexpr std::make_index_sequence<10> all;
    if (t.kind == 'f' || t.kind == 'h' || t.kind == 'w' || t.kind == 'e') {
      if (op != exch) throw Unknown("float atomics: they add in any order. " + s.text);
    }
    if (t.bits == 32) return t.kind == 's' ? choose(all, s32()) : choose(all, u32());
    if (t.bits == 64) return t.kind == 's' ? choose(all, s64()) : choose(all, u64());
  }
  return nullptr;
}

void nothing(const Instruction&, Warp&, u32) {}

}  // namespace

Handler memory_handler(const Statement& s, Instruction& i) {
  const std::string& op = s.op[0];
  if (op == "ld" || op == "ldu" || op == "st") {
    const Type t = s.type();
    i.writes = op == "st";
    switch (t.bits) {
      case 8:
        return with_register<u8>(i, t.kind == 's');
      case 16:
        return with_register<u16>(i, t.kind == 's');
      case 32:
        return with_register<u32>(i, t.kind == 's');
      case 64:
        return with_register<u64>(i, t.kind == 's');
      default:
        return nullptr;
    }
  }
  if (op == "cvta") return s.has("to") ? move_window<-1> : move_window<1>;
  if (op == "atom" || op == "red") {
    i.writes = true;
    return atomic_handler(s);
  }
  if (op == "membar" || op == "fence" || op == "prefetch" || op == "prefetchu" ||
      op == "nanosleep" || op == "griddepcontrol")
    return nothing;
  return nullptr;
}

}  // namespace interpreter
