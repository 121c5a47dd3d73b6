// The first-level cache of a multiprocessor, which its blocks share: loads that hit it do not
// reach the second-level cache. Blocks go to the multiprocessors in turn. A cache has lines of 128
// bytes, filled by sectors of 32, in sets of 8 with replacement of the least recently used one.
// Stores write through.
//
// A model of an H100: 132 multiprocessors with 256 KiB for this cache and shared memory together.
// The interpreter runs one block at a time, which gets the share that it would have next to the
// blocks that run with it on hardware. Its warps run one after the other from barrier to barrier,
// and therefore hit more often than on hardware.
#pragma once

#include <algorithm>
#include <vector>

#include "ptx.h"

namespace interpreter {

class Caches {
 public:
  static constexpr u32 processors = 132;

  /// Empties the caches for a launch whose blocks have `bytes` each.
  void begin(u64 bytes) {
    sets_ = std::max<u64>(bytes / (line_bytes * ways), 1);
    lines_.assign(processors * sets_ * ways, 0);
    mine_ = lines_.data();
  }
  void choose(u64 block) { mine_ = lines_.data() + block % processors * sets_ * ways; }

  /// True if this sector, an address in units of 32 bytes, has to be fetched.
  bool misses(u64 sector) {
    const u64 line = sector / 4 + 1, bit = u64(1) << sector % 4;  // 0: empty
    u64* const set = mine_ + (line * 0x9e3779b97f4a7c15u >> 20) % sets_ * ways;
    int way = 0;
    while (way < ways - 1 && set[way] >> 4 != line) ++way;
    const u64 found = set[way] >> 4 == line ? set[way] : line << 4;
    for (; way > 0; --way) set[way] = set[way - 1];
    set[0] = found | bit;
    return !(found & bit);
  }

 private:
  static constexpr u64 line_bytes = 128;
  static constexpr int ways = 8;
  u64 sets_ = 1;
  std::vector<u64> lines_;
  u64* mine_ = nullptr;
};

}  // namespace interpreter
