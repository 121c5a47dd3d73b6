// One access of a warp to memory: where each lane goes, whether it may, and what it costs.
#pragma once

#include "interpreter.h"

namespace interpreter {

struct Access {
  Space space;        // global, shared, local or param
  u8 *bytes, *state;  // of the space
  u64 at[32];         // offsets into it; lanes outside of the mask: that of a lane inside
  u32 mask;
  u32 size;         // of one lane's access
  bool contiguous;  // lane l lies size · l behind lane 0, all lanes there
  bool uniform;     // all lanes at one place
};

/// Resolves generic addresses and checks alignment and bounds. The lanes go to one space.
Access resolve(const Instruction &, Warp &, Space, const u64 (&addresses)[32], u32 mask, u32 size);
/// After resolve: unwritten memory, races, counters.
void check_read(const Instruction &, Warp &, const Access &);
void check_write(const Instruction &, Warp &, const Access &);
void check_atomic(const Instruction &, Warp &, const Access &);

/// Lanes touch n bytes of shared memory each: races (what cp.async copied comes here directly).
void touch_shared(const Instruction &, Warp &, u32 mask, const u64 *at, u32 n, bool writes);

}  // namespace interpreter
