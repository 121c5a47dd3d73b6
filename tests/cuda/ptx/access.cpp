#include "access.h"

#include <algorithm>

namespace interpreter {
namespace {

const char* kind_of(const Instruction& i) { return i.writes ? "store" : "load"; }
const char* name_of(Space s) {
  return s == Space::shared ? "shared memory" : s == Space::local ? "local memory" : "memory";
}

std::string bytes_of(u32 n) { return std::to_string(n) + (n == 1 ? " byte" : " bytes"); }

/// The place of an offset, in words.
std::string place(const Block& b, Space space, u64 at) {
  auto& device = DeviceMemory::get();
  if (space == Space::global) return "at " + device.place(device.base + at);
  if (space == Space::shared)
    return "at byte " + std::to_string(at) + " of " + std::to_string(b.shared_bytes);
  return "at byte " + std::to_string(at);
}

/// Calls f once for each sector, if `each`.
template <class F>
void count_sectors(Counters::Global& c, const Access& a, bool each, F&& f) {
  ++c.requests;
  c.bytes += u64(__builtin_popcount(a.mask)) * a.size;
  if (a.contiguous || a.uniform) {
    const u64 first = a.at[0] / 32, last = a.uniform ? first : (a.at[31] + a.size - 1) / 32;
    c.sectors += last - first + 1;
    if (each)
      for (u64 s = first; s <= last; ++s) f(s);
    return;
  }
  u64 sectors[64];
  int n = 0;
  for_lanes(a.mask, [&](int l) {
    const u64 s = a.at[l] / 32;
    if (n == 0 || sectors[n - 1] != s) sectors[n++] = s;
  });
  std::sort(sectors, sectors + n);
  n = int(std::unique(sectors, sectors + n) - sectors);
  c.sectors += u64(n);
  if (each)
    for (int k = 0; k < n; ++k) f(sectors[k]);
}

// Shared memory serves 32 banks of 4 bytes at a time: 8-byte accesses by half of a warp, 16-byte
// ones by quarter; lanes that access the same word share it.
void count_wavefronts(Counters& c, const Access& a) {
  const int words = int(std::max(a.size / 4, 1u)), lanes = 32 / words;
  ++c.shared_requests;
  if (a.contiguous || a.uniform) {
    c.shared_wavefronts += u64(a.uniform ? 1 : words);
    c.shared_ideal += u64(a.uniform ? 1 : words);
    return;
  }
  for (int from = 0; from < 32; from += lanes) {
    const u32 part = a.mask & (lanes == 32 ? all_lanes : ((1u << lanes) - 1) << from);
    if (!part) continue;
    ++c.shared_ideal;
    u32 banks = 0;
    for_lanes(part, [&](int l) { banks |= ((1u << words) - 1) << (a.at[l] / 4 % 32); });
    if (__builtin_popcount(banks) == __builtin_popcount(part) * words) {  // no conflicts
      ++c.shared_wavefronts;
      continue;
    }
    u32 seen[32][32];
    u8 many[32] = {};
    for_lanes(part, [&](int l) {
      for (int k = 0; k < words; ++k) {
        const u32 word = u32(a.at[l] / 4) + u32(k), bank = word % 32;
        u8 i = 0;
        while (i < many[bank] && seen[bank][i] != word) ++i;
        if (i == many[bank]) seen[bank][many[bank]++] = word;
      }
    });
    c.shared_wavefronts += *std::max_element(many, many + 32);
  }
}

// Tags of shared memory: the barrier epoch, the warp's own epoch, the thread; for readers also
// whether there were several lanes or several warps.
constexpr u64 many_lanes = 1, many_warps = 2;
u64 tag(const Warp& w, int lane) {
  return w.block->epoch << 34 | u64(w.epoch & 0x3fffff) << 12 | u64(w.id * 32 + lane) << 2;
}
bool same_epoch(u64 a, u64 b) { return a >> 34 == b >> 34; }
bool same_warp(u64 a, u64 b) { return (a >> 7 & 31) == (b >> 7 & 31); }
bool same_thread(u64 a, u64 b) { return (a >> 2 & 1023) == (b >> 2 & 1023); }
bool same_warp_epoch(u64 a, u64 b) { return a >> 12 == b >> 12; }

bool conflict(u64 before, u64 now) {
  if (!same_epoch(before, now)) return false;
  if (before & many_warps || !same_warp(before, now)) return true;
  return same_warp_epoch(before, now) && (before & many_lanes || !same_thread(before, now));
}
u64 with_reader(u64 before, u64 now) {
  if (!same_epoch(before, now)) return now;
  if (!same_warp(before, now)) return now | many_warps;
  now |= before & many_warps;
  if (same_warp_epoch(before, now))
    now |= (before & many_lanes) | (same_thread(before, now) ? 0 : many_lanes);
  return now;
}

/// conflict() and with_reader() for four words at a time, without a branch.
using Tags = u64 __attribute__((vector_size(32)));
struct Meeting {
  Meeting(const u64* words, Tags now) {
    Tags before;
    std::memcpy(&before, words, sizeof before);
    const Tags differ = before ^ now;
    const Tags epoch = Tags(differ >> 34 == 0), here = Tags(differ >> 12 == 0);
    const Tags warps = epoch & Tags(((differ >> 7 & 31) | (before & many_warps)) != 0);
    const Tags lanes = here & Tags(((differ >> 2 & 1023) | (before & many_lanes)) != 0);
    conflict = warps | lanes;
    readers = now | (warps & many_warps) | (lanes & many_lanes);
  }
  Tags conflict, readers;
};

/// Records an access to words of shared memory; if it is a race, returns false and records nothing.
bool touch_four(u64* writer, u64* reader, Tags now, bool writes) {
  const Meeting written(writer, now), read(reader, now);
  Tags bad = written.conflict;
  if (writes) bad |= read.conflict;
  if (bad[0] | bad[1] | bad[2] | bad[3]) return false;
  std::memcpy(writes ? writer : reader, writes ? &now : &read.readers, sizeof now);
  return true;
}
bool touch_word(u64& writer, u64& reader, u64 now, bool writes) {
  if (conflict(writer, now) || (writes && conflict(reader, now))) return false;
  (writes ? writer : reader) = writes ? now : with_reader(reader, now);
  return true;
}

/// Several blocks of a launch may read the same bytes, but bytes that are written
/// belong to one block.
void touch_global(const Instruction& i, Warp& w, const Access& a, bool writes) {
  Block& b = *w.block;
  auto& device = DeviceMemory::get();
  b.use(device.base + a.at[__builtin_ctz(a.mask)], writes);
  const int granule = b.kernel.granule;
  const u32 n = std::max(a.size >> granule, 1u), me = b.tag, first = b.launch_tag;
  u32 bad = 0, fresh = 0;
  auto pass = [&](u32* writer, u32* reader, u32 count) {  // & and |: no branches
    if (writes) {
#pragma GCC ivdep
      for (u32 k = 0; k < count; ++k) {
        const u32 other = writer[k], read = reader[k];
        bad |= u32(other >= first) & u32(other != me);
        bad |= u32(read >= first) & u32(read != me);
        fresh += u32(other < first);
        writer[k] = me;
      }
    } else {
#pragma GCC ivdep
      for (u32 k = 0; k < count; ++k) {
        const u32 other = writer[k], read = reader[k];
        bad |= u32(other >= first) & u32(other != me);
        fresh += u32(read < first);
        reader[k] = (u32(read < first) | u32(read == me)) ? me : first;  // first: several blocks
      }
    }
  };
  int culprit = 0;
  if (a.contiguous) {
    pass(device.writer + (a.at[0] >> granule), device.reader + (a.at[0] >> granule), 32 * n);
  } else {
    for_lanes(a.uniform && !writes ? a.mask & -a.mask : a.mask, [&](int l) {
      const u32 before = bad;
      pass(device.writer + (a.at[l] >> granule), device.reader + (a.at[l] >> granule), n);
      if (bad != before) culprit = l;
    });
  }
  (writes ? b.counters.store : b.counters.load).unique_bytes += u64(fresh) << granule;
  if (bad)
    b.fail(i, w, culprit,
           "two blocks: a " + std::string(kind_of(i)) + " of what another block of the launch " +
               (writes ? "touches, " : "wrote, ") + place(b, a.space, a.at[culprit]));
}

/// The space that contains a generic address.
Space space_at(u64 address) {
  const u64 window = address & window_mask;
  return window == shared_window  ? Space::shared
         : window == local_window ? Space::local
         : window == param_window ? Space::param
                                  : Space::global;
}

struct Range {
  u64 start, size;
};

/// Sets the access's bytes and states to those of its space; returns the space's addresses.
Range open_space(Access& a, Block& b, bool generic) {
  switch (a.space) {
    case Space::shared:
      a.bytes = b.shared.data(), a.state = b.shared_state.data();
      return {generic ? shared_window : 0, b.shared_bytes};
    case Space::local:
      a.bytes = b.local.data(), a.state = b.local_state.data();
      return {generic ? local_window : 0, b.kernel.local_bytes};
    case Space::param:
      a.bytes = const_cast<u8*>(b.launch.params), a.state = b.param_state.data();
      return {generic ? param_window : 0, b.kernel.param_bytes};
    default:
      a.space = Space::global;
      a.bytes = DeviceMemory::get().data, a.state = DeviceMemory::get().state;
      return {DeviceMemory::get().base, DeviceMemory::get().size};
  }
}

/// Sets the lanes' offsets into the space, and whether they are contiguous or all the same.
void set_offsets(Access& a, const u64 (&addresses)[32], u64 start) {
  const u64 base = addresses[__builtin_ctz(a.mask)] - start;
  u64 apart = u64(a.mask != all_lanes), different = 0;
  if (a.mask == all_lanes) {
#pragma GCC ivdep
    for (int l = 0; l < 32; ++l) {
      a.at[l] = addresses[l] - start;
      apart |= a.at[l] ^ (base + u64(l) * a.size);
      different |= a.at[l] ^ base;
    }
  } else {
#pragma GCC ivdep
    for (int l = 0; l < 32; ++l) {
      const u64 at = addresses[l] - start;
      a.at[l] = (a.mask >> l) & 1 ? at : base;
      different |= a.at[l] ^ base;
    }
  }
  a.contiguous = apart == 0 && a.space != Space::local;
  a.uniform = different == 0 && a.space != Space::local;
}

/// Fails unless each lane is within the first `limit` bytes, at a multiple of the access's size.
void check_offsets(const Instruction& i, Warp& w, const Access& a, const u64 (&addresses)[32],
                   u64 limit) {
  Block& b = *w.block;
  const u64 last = limit - a.size;  // limit < size: wraps, and is tested below
  u32 outside = 0, odd = 0;
#pragma GCC ivdep
  for (int l = 0; l < 32; ++l) {
    outside |= u32(a.at[l] > last);
    odd |= u32(a.at[l] & (a.size - 1));
  }
  if (outside || limit < a.size) [[unlikely]] {
    for_lanes(a.mask, [&](int l) {
      if (a.at[l] <= last && limit >= a.size) return;
      b.fail(i, w, l,
             std::string("out of bounds: a ") + kind_of(i) + " of " + bytes_of(a.size) + " of " +
                 name_of(a.space) + ' ' +
                 (a.space == Space::global ? "at " + DeviceMemory::get().place(addresses[l])
                                           : place(b, a.space, a.at[l])),
             illegal_address);
    });
  }
  if (odd) [[unlikely]]
    for_lanes(a.mask, [&](int l) {
      if (a.at[l] & (a.size - 1))
        b.fail(i, w, l,
               std::string("misaligned: a ") + kind_of(i) + " of " + bytes_of(a.size) + ' ' +
                   place(b, a.space, a.at[l]),
               misaligned_address);
    });
}

}  // namespace

Access resolve(const Instruction& i, Warp& w, Space space, const u64 (&addresses)[32], u32 mask,
               u32 size) {
  Block& b = *w.block;
  Access a;
  const int first = __builtin_ctz(mask);
  const bool generic = space == Space::generic;
  a.space = generic ? space_at(addresses[first]) : space;
  a.mask = mask;
  a.size = size;
  const auto [start, limit] = open_space(a, b, generic);
  set_offsets(a, addresses, start);
  const u64 base = a.at[first];
  if (a.contiguous && 32 * size <= limit && base <= limit - 32 * size && base % size == 0) return a;
  check_offsets(i, w, a, addresses, limit);
  if (a.space == Space::local)
    for (int l = 0; l < 32; ++l)
      a.at[l] += u64(w.id * 32 + ((mask >> l) & 1 ? l : first)) * b.kernel.local_bytes;
  return a;
}

namespace {

constexpr u64 tops = 0x8080808080808080u, ones = 0x0101010101010101u;

/// For eight states at a time: a byte's top bit is set if its state is at least `least`.
u64 enough(u64 states, State least) { return (tops | states) - u64(least) * ones; }

template <class Word>  // of a lane's access: all of it, or a part
bool enough_in_words(const Access& a, u32 lanes, State least) {
  constexpr u64 out_of_range = sizeof(Word) < 8 ? u64(written) * ones << 8 * sizeof(Word) % 64 : 0;
  u64 all = tops;
  for_lanes(lanes, [&](int l) {
    for (u32 k = 0; k < a.size; k += u32(sizeof(Word))) {
      Word word;
      std::memcpy(&word, a.state + a.at[l] + k, sizeof word);
      all &= enough(word | out_of_range, least);
    }
  });
  return (all & tops) == tops;
}

bool enough_in_lanes(const Access& a, u32 lanes, State least) {
  switch (a.size) {
    case 1:
      return enough_in_words<u8>(a, lanes, least);
    case 2:
      return enough_in_words<u16>(a, lanes, least);
    case 4:
      return enough_in_words<u32>(a, lanes, least);
    default:
      return enough_in_words<u64>(a, lanes, least);
  }
}

/// Fails unless all bytes of all lanes are in a state of at least `least`.
void check_state(const Instruction& i, Warp& w, const Access& a, State least) {
  if (a.contiguous) {
    const u8* s = a.state + a.at[0];
    u64 all = tops;
    for (u32 k = 0; k < 32 * a.size; k += 32) {
      u64 word[4];
      std::memcpy(word, s + k, 32);
      for (u64 x : word) all &= enough(x, least);
    }
    if ((all & tops) == tops) return;
  }
  const u32 lanes = a.uniform ? a.mask & -a.mask : a.mask;
  if (enough_in_lanes(a, lanes, least)) return;
  for_lanes(lanes, [&](int l) {
    for (u32 k = 0; k < a.size; ++k) {
      const u8 s = a.state[a.at[l] + k];
      if (s >= least) continue;
      if (s == absent)
        w.block->fail(i, w, l,
                      std::string("out of bounds: a ") + kind_of(i) + " of " + bytes_of(a.size) +
                          ' ' + place(*w.block, a.space, a.at[l]),
                      illegal_address);
      w.block->fail(i, w, l,
                    std::string("unwritten: a load of ") + name_of(a.space) +
                        " that nothing wrote, " + place(*w.block, a.space, a.at[l] + k));
    }
  });
}

void count(Warp& w, const Access& a, bool writes) {
  Counters& c = w.block->counters;
  if (a.space == Space::global) {
    count_sectors(writes ? c.store : c.load, a, !writes && counting(),
                  [&](u64 sector) { c.load_missed += w.block->caches.misses(sector); });
  } else if (a.space == Space::shared) {
    count_wavefronts(c, a);
  } else if (a.space == Space::local) {
    ++c.local_requests;
  }
}

}  // namespace

namespace {

[[noreturn]] void race(const Instruction& i, Warp& w, int lane, u64 word, u64 at, bool writes) {
  Block& b = *w.block;
  const u64 me = tag(w, lane), writer = b.shared_writer[word];
  const bool wrote = conflict(writer, me);
  const u64 other = wrote ? writer : b.shared_reader[word];
  const bool warps = other & many_warps;
  b.fail(i, w, lane,
         "race: a " + std::string(writes ? "store" : "load") + " of shared memory that " +
             (warps ? "other warps" : "thread " + std::to_string(other >> 2 & 1023)) +
             (wrote ? " wrote" : " read") +
             (same_warp(other, me) && !warps ? " with no __syncwarp between, "
                                             : " with no barrier between, ") +
             place(b, Space::shared, at));
}

}  // namespace

void touch_shared(const Instruction& i, Warp& w, u32 mask, const u64* at, u32 n, bool writes) {
  Block& b = *w.block;
  const int granule = b.kernel.shared_granule;
  const u64 lane0 = tag(w, 0);
  for_lanes(mask, [&](int l) {
    const u64 me = lane0 + (u64(l) << 2), first = at[l] >> granule,
              last = (at[l] + n - 1) >> granule;
    if (last - first == 3 &&
        touch_four(&b.shared_writer[first], &b.shared_reader[first], Tags{me, me, me, me}, writes))
      return;
    for (u64 g = first; g <= last; ++g)
      if (!touch_word(b.shared_writer[g], b.shared_reader[g], me, writes))
        race(i, w, l, g, at[l], writes);
  });
}

namespace {

/// As touch_shared(), for adjacent lanes; false, and perhaps not all recorded, if it is a race.
bool touch_row(Warp& w, u64 at, u32 size, bool writes) {
  Block& b = *w.block;
  const int granule = b.kernel.shared_granule;
  const u32 each = std::max(size >> granule, 1u), shift = u32(__builtin_ctz(each));
  u64* writer = &b.shared_writer[at >> granule];
  u64* reader = &b.shared_reader[at >> granule];
  const u64 lane0 = tag(w, 0), now = lane0 >> 34;
  u64 near = 0;  // an access by another thread in this epoch
#pragma GCC ivdep
  for (u32 k = 0; k < 32 * each; ++k) {
    const u64 me = lane0 + (u64(k >> shift) << 2);
    near |= u64(writer[k] >> 34 == now) & u64((writer[k] ^ me) << 52 >> 54 != 0);
    near |= u64(reader[k] >> 34 == now) & u64((reader[k] ^ me) << 52 >> 52 != 0);
  }
  if (near) {
    for (u32 k = 0; k < 32 * each; k += 4) {
      Tags me;
      for (u32 j = 0; j < 4; ++j) me[j] = lane0 + (u64((k + j) >> shift) << 2);
      if (!touch_four(writer + k, reader + k, me, writes)) return false;
    }
    return true;
  }
  u64* to = writes ? writer : reader;
#pragma GCC ivdep
  for (u32 k = 0; k < 32 * each; ++k) to[k] = lane0 + (u64(k >> shift) << 2);
  return true;
}

void touch_shared(const Instruction& i, Warp& w, const Access& a, bool writes) {
  if (a.uniform && !writes) {
    Block& b = *w.block;
    const int granule = b.kernel.shared_granule, first = __builtin_ctz(a.mask);
    touch_shared(i, w, 1u << first, a.at, a.size, false);
    if (a.mask & (a.mask - 1))
      for (u64 g = a.at[first] >> granule; g <= (a.at[first] + a.size - 1) >> granule; ++g)
        b.shared_reader[g] |= many_lanes;
  } else if (!a.contiguous || !touch_row(w, a.at[0], a.size, writes)) {
    touch_shared(i, w, a.mask, a.at, a.size, writes);
  }
}

}  // namespace

void check_read(const Instruction& i, Warp& w, const Access& a) {
  check_state(i, w, a, written);
  count(w, a, false);
  if (a.space == Space::global) touch_global(i, w, a, false);
  if (a.space == Space::shared) touch_shared(i, w, a, false);
}

void check_write(const Instruction& i, Warp& w, const Access& a) {
  if (a.space == Space::param) w.block->fail(i, w, __builtin_ctz(a.mask), "a store to parameters");
  if (a.uniform && a.space == Space::global && (a.mask & (a.mask - 1)))
    w.block->fail(i, w, __builtin_ctz(a.mask & (a.mask - 1)),
                  "race: several threads store to one place, " + place(*w.block, a.space, a.at[0]));
  check_state(i, w, a, unwritten);
  count(w, a, true);
  if (a.space == Space::global) touch_global(i, w, a, true);
  if (a.space == Space::shared) touch_shared(i, w, a, true);
  if (a.contiguous) {
    std::memset(a.state + a.at[0], written, 32 * a.size);
  } else {
    for_lanes(a.mask, [&](int l) { std::memset(a.state + a.at[l], written, a.size); });
  }
}

void check_atomic(const Instruction& i, Warp& w, const Access& a) {
  check_state(i, w, a, written);
  count(w, a, true);
  ++w.block->counters.atomics;
}

}  // namespace interpreter
