// Operations of the lanes of a warp together: shuffles, votes, loads of matrices, asynchronous
// copies. Layouts are those of the PTX manual: lane l is in group g = l / 4, at place t = l % 4.
#include <bit>

#include "access.h"

namespace interpreter {
namespace {

// ---- shuffles and votes; i.s[3]: the mask of the lanes that take part

enum Shuffle { up, down, bfly, idx };
template <Shuffle mode>
void shuffle(const Instruction& i, Warp& w, u32 mask) {
  const u32 *a = w.lane<u32>(i.s[0]), *b = w.lane<u32>(i.s[1]), *c = w.lane<u32>(i.s[2]);
  u32 value[32] = {};
  u32 inside = 0;
  if (mask == all_lanes && mode == bfly && c[0] == 31 && b[0] < 32) {  // one loop, for reductions
    const u32 x = b[0];
    for (int l = 0; l < 32; ++l) value[l] = a[u32(l) ^ x];
    inside = all_lanes;
  } else {
    for_lanes(mask, [&](int l) {
      const int by = int(b[l] & 31), clamp = int(c[l] & 31), segment = int(c[l] >> 8 & 31);
      const int last = (l & segment) | (clamp & ~segment), first = l & segment;
      int from = l;
      bool in = false;
      switch (mode) {
        case up:
          from = l - by;
          in = from >= last;
          break;
        case down:
          from = l + by;
          in = from <= last;
          break;
        case bfly:
          from = l ^ by;
          in = from <= last;
          break;
        case idx:
          from = first | (by & ~segment);
          in = from <= last;
          break;
      }
      if (!in) from = l;
      if (!(mask >> from & 1))
        w.block->fail(i, w, l,
                      "shuffle: reads lane " + std::to_string(from) + ", which takes no part");
      value[l] = a[from];
      inside |= u32(in) << l;
    });
  }
  if (i.d) each_lane<u32>(w, i.d, mask, [&](int l) { return value[l]; });
  if (i.count == 2) set_predicate(w, i.list[1], mask, inside);
}

enum Vote { all, any, uni, ballot };
template <Vote mode>
void vote(const Instruction& i, Warp& w, u32 mask) {
  const u32 p = (w.mask(i.s[0]) ^ u32(i.offset)) & mask;
  if (mode == ballot) return each_lane<u32>(w, i.d, mask, [&](int) { return p; });
  const bool yes = mode == all ? p == mask : mode == any ? p != 0 : p == mask || p == 0;
  set_predicate(w, i.d, mask, yes ? all_lanes : 0);
}
void active(const Instruction& i, Warp& w, u32 mask) {
  each_lane<u32>(w, i.d, mask, [&](int) { return mask; });
}
template <class T, bool all_equal>
void match(const Instruction& i, Warp& w, u32 mask) {
  const T* a = w.lane<T>(i.s[0]);
  u32 value[32] = {};
  for_lanes(mask,
            [&](int l) { for_lanes(mask, [&](int o) { value[l] |= u32(a[o] == a[l]) << o; }); });
  const bool same = value[__builtin_ctz(mask)] == mask;
  each_lane<u32>(w, i.d, mask, [&](int l) { return !all_equal ? value[l] : same ? mask : 0; });
  if (i.count == 2) set_predicate(w, i.list[1], mask, same ? all_lanes : 0);
}
template <class T, class F>
void reduce(const Instruction& i, Warp& w, u32 mask) {
  const T* a = w.lane<T>(i.s[0]);
  T r = a[__builtin_ctz(mask)];
  for_lanes(mask & (mask - 1), [&](int l) { r = F()(r, a[l]); });
  each_lane<T>(w, i.d, mask, [&](int) { return r; });
}
struct Least {
  template <class T>
  T operator()(T a, T b) const {
    return a < b ? a : b;
  }
};
struct Greatest {
  template <class T>
  T operator()(T a, T b) const {
    return a > b ? a : b;
  }
};

Handler warp_handler(const Statement& s) {
  const std::string& op = s.op[0];
  if (op == "shfl") {
    if (s.has("up")) return shuffle<up>;
    if (s.has("down")) return shuffle<down>;
    return s.has("bfly") ? shuffle<bfly> : shuffle<idx>;
  }
  if (op == "vote") {
    if (s.has("ballot")) return vote<ballot>;
    return s.has("all") ? vote<all> : s.has("any") ? vote<any> : vote<uni>;
  }
  if (op == "activemask") return active;
  if (op == "match") {
    const bool is64 = s.type().bits == 64;
    if (s.has("all")) return is64 ? match<u64, true> : match<u32, true>;
    return is64 ? match<u64, false> : match<u32, false>;
  }
  if (op == "redux") {
    if (s.has("add")) return reduce<u32, std::plus<>>;
    if (s.has("and")) return reduce<u32, std::bit_and<>>;
    if (s.has("or")) return reduce<u32, std::bit_or<>>;
    if (s.has("xor")) return reduce<u32, std::bit_xor<>>;
    if (s.type().kind == 's') return s.has("min") ? reduce<s32, Least> : reduce<s32, Greatest>;
    return s.has("min") ? reduce<u32, Least> : reduce<u32, Greatest>;
  }
  return nullptr;
}

// ---- matrices

// ldmatrix: lanes 8m … 8m + 7 have the addresses of the rows of matrix m, 16 bytes each.
template <bool transposed>
void load_matrix(const Instruction& i, Warp& w, u32) {
  const int matrices = i.count, lanes = 8 * matrices;
  const u32 mask = lanes == 32 ? all_lanes : (1u << lanes) - 1;
  u64 to[32];
  for (int l = 0; l < 32; ++l)
    to[l] = (i.bytes == 4 ? w.lane<u32>(i.s[0])[l] : w.lane<u64>(i.s[0])[l]) + u64(i.offset);
  const Access a = resolve(i, w, i.space, to, mask, 16);
  if (a.space != Space::shared) w.block->fail(i, w, 0, "ldmatrix of memory that is not shared");
  check_read(i, w, a);
  for (int m = 0; m < matrices; ++m) {
    u32* d = w.lane<u32>(i.list[m]);
    for (int l = 0; l < 32; ++l) {
      auto half = [&](int row, int column) {
        u16 x;
        std::memcpy(&x, a.bytes + a.at[8 * m + row] + 2 * column, 2);
        return u32(x);
      };
      const int g = l / 4, t = l % 4 * 2;
      d[l] = transposed ? half(t, g) | half(t + 1, g) << 16 : half(g, t) | half(g, t + 1) << 16;
    }
    w.valid[i.valid_list[m]] = all_lanes;
  }
}

void transpose_matrix(const Instruction& i, Warp& w, u32) {  // movmatrix
  const u32* a = w.lane<u32>(i.s[0]);
  u32 value[32];
  for (int l = 0; l < 32; ++l) {
    auto half = [&](int row, int column) {
      return a[row * 4 + column / 2] >> (16 * (column & 1)) & 0xffff;
    };
    const int g = l / 4, t = l % 4 * 2;
    value[l] = half(t, g) | half(t + 1, g) << 16;
  }
  each_lane<u32>(w, i.d, all_lanes, [&](int l) { return value[l]; });
}

// ---- cp.async: between issue and wait_group the destination is unwritten

void copy_async(const Instruction& i, Warp& w, u32 mask) {
  u64 to[32], from[32];
  for (int l = 0; l < 32; ++l) {
    to[l] = i.register_bytes == 4 ? w.lane<u32>(i.s[0])[l] : w.lane<u64>(i.s[0])[l];
    from[l] = w.lane<u64>(i.s[1])[l] + u64(i.offset >> 32);
    to[l] += u64(s32(i.offset));
  }
  w.open.push_back({&i, mask, i.bytes, {}, {}});
  Copy& copy = w.open.back();
  const u32* n = w.lane<u32>(i.s[2]);  // bytes to read, the rest becomes zeros
  Instruction reading = i;
  reading.writes = false;
  u32 reads = 0;
  for_lanes(mask, [&](int l) { reads |= u32(n[l] != 0) << l; });
  Access source{};
  if (reads) {
    source = resolve(reading, w, Space::global, from, reads, i.bytes);
    Counters& counters = w.block->counters;
    const u64 before = counters.load.sectors;
    check_read(reading, w, source);
    counters.copied_sectors += counters.load.sectors - before;
  }
  const Access target =
      resolve(i, w, to[__builtin_ctz(mask)] < shared_window ? Space::shared : Space::generic, to,
              mask, i.bytes);
  check_write(i, w, target);
  for_lanes(mask, [&](int l) {
    copy.to[l] = target.at[l];
    if (n[l]) std::memcpy(copy.data[l], source.bytes + source.at[l], std::min<u32>(n[l], i.bytes));
    std::memset(target.bytes + target.at[l], 0xff, i.bytes);
    std::memset(target.state + target.at[l], unwritten, i.bytes);
  });
}
void commit_copies(const Instruction&, Warp& w, u32) {
  w.copies.push_back(std::move(w.open));
  w.open.clear();
}
void finish(Warp& w, const Copy& c) {
  Block& b = *w.block;
  touch_shared(*c.by, w, c.mask, c.to, c.bytes, true);
  for_lanes(c.mask, [&](int l) {
    std::memcpy(&b.shared[c.to[l]], c.data[l], c.bytes);
    std::memset(&b.shared_state[c.to[l]], written, c.bytes);
  });
}
void wait_copies(const Instruction& i, Warp& w, u32) {
  const size_t left = i.target < 0 ? 0 : size_t(i.target);
  if (i.target < 0) commit_copies(i, w, 0);  // wait_all
  while (w.copies.size() > left) {
    for (const Copy& c : w.copies.front()) finish(w, c);
    w.copies.erase(w.copies.begin());
  }
}

void nothing(const Instruction&, Warp&, u32) {}

}  // namespace

Handler collective_handler(const Statement& s, Instruction& i) {
  const std::string& op = s.op[0];
  if (op == "bar" || op == "barrier") return nothing;  // the scheduler's
  if (op == "mma") return matrix_product(s);
  if (op == "ldmatrix")
    return !s.has("m8n8") ? nullptr : s.has("trans") ? load_matrix<true> : load_matrix<false>;
  if (op == "movmatrix") return transpose_matrix;
  if (op == "cp" && s.op.at(1) == "async") {
    if (s.has("bulk") || s.has("mbarrier")) return nullptr;
    if (s.has("commit_group")) return commit_copies;
    if (s.has("wait_all")) {
      i.target = -1;
      return wait_copies;
    }
    if (s.has("wait_group")) {
      i.target = int(s.operands.at(0).value);
      return wait_copies;
    }
    i.bytes = u8(s.operands.at(2).value);
    return copy_async;
  }
  return warp_handler(s);
}

}  // namespace interpreter
