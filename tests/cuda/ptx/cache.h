// The first cache of a multiprocessor, of which blocks have their share: what loads ask for again
// while it is still there does not go to the second cache. Blocks go to the multiprocessors in
// turn; each keeps lines of 128 bytes, of which it fetches sectors of 32, in sets of 8 with the one
// used longest ago leaving. Stores go through.
//
// A model of an H100: 132 multiprocessors with 256 KiB for this and shared memory together. One
// block runs at a time here, so it has what one of those that would run side by side would have;
// its warps go one after the other from barrier to barrier, and so find more than they would there.
#pragma once

#include <algorithm>
#include <vector>

#include "ptx.h"

namespace interpreter {

class Caches {
 public:
  static constexpr u32 processors = 132;

  /// Empty, for a launch whose blocks have `bytes` each.
  void begin(u64 bytes) {
    sets_ = std::max<u64>(bytes / (line_bytes * ways), 1);
    lines_.assign(processors * sets_ * ways, 0);
    mine_ = lines_.data();
  }
  void choose(u64 block) { mine_ = lines_.data() + block % processors * sets_ * ways; }

  /// Whether this sector, a number of 32-byte units, has to be fetched.
  bool misses(u64 sector) {
    const u64 line = sector / 4 + 1, bit = u64(1) << sector % 4;  // 0: nothing there
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
