// One access of a warp to memory: each lane's place, whether it is allowed, and its cost.
#pragma once

#include "interpreter.h"

namespace interpreter {

struct Access {
  Space space;        // global, shared, local or param
  u8 *bytes, *state;  // of the space
  u64 at[32];         // offsets into it; lanes outside of the mask have that of a lane inside
  u32 mask;
  u32 size;         // of one lane's access
  bool contiguous;  // lane l is size · l bytes after lane 0, and all lanes take part
  bool uniform;     // all lanes have the same offset
};

/// Resolves generic addresses and checks alignment and bounds. All lanes access one space.
Access resolve(const Instruction &, Warp &, Space, const u64 (&addresses)[32], u32 mask, u32 size);
/// To be called after resolve(): check for unwritten memory and races, and count.
void check_read(const Instruction &, Warp &, const Access &);
void check_write(const Instruction &, Warp &, const Access &);
void check_atomic(const Instruction &, Warp &, const Access &);

/// Records that lanes access n bytes of shared memory each, and reports races.
/// cp.async calls it directly.
void touch_shared(const Instruction &, Warp &, u32 mask, const u64 *at, u32 n, bool writes);

}  // namespace interpreter
