// A warp: 32 lanes of registers, the position of each lane, and the decoded instructions.
//
// A register is an array of 32 values of its own size, so that an instruction that all lanes run is
// a plain loop. Constants and special registers are registers too (filled once), so that every
// source operand is an offset into one array. Predicates are 32-bit masks.
#pragma once

#include <array>
#include <cstring>

#include "ptx.h"

namespace interpreter {

inline constexpr u32 all_lanes = 0xffffffffu;

struct Warp;
struct Instruction;
using Handler = void (*)(const Instruction&, Warp&, u32 mask);

/// How the scheduler treats an instruction. sync: waits for the lanes of its mask;
/// aligned: for all lanes.
enum class Flow : u8 { plain, sync, aligned, branch, table, barrier, exit };
enum class Pipe : u8 {
  integer,
  floating,
  f64,
  convert,
  special,
  memory,
  shared,
  matrix,
  warp,
  control,
  folded  // none on hardware: a negation, or a register's copy, which ptxas merges
};
inline constexpr int pipes = 11;

struct Instruction {
  Handler run = nullptr;
  u32 d = 0;                  // offsets of registers: the destination,
  std::array<u32, 4> s{};     // the sources,
  const u32* list = nullptr;  // and those of vectors and matrices, if there are more
  u32 guard = 0;              // a predicate; its set bits are flipped by
  u32 flip = 0;
  u16 valid_d = 0;  // indices of the destination's and the sources' `valid` masks
  std::array<u16, 3> valid_s{};
  const u16* valid_list = nullptr;
  u8 count = 0;  // of list; for loads and stores, the bytes of the address
  u8 sets = 0;   // number of destinations in list
  Flow flow = Flow::plain;
  Pipe pipe = Pipe::integer;
  Space space = Space::generic;
  u8 bytes = 0;           // of one item of a memory access
  u8 register_bytes = 0;  // of the register that is loaded or stored
  bool writes = false;
  bool is_signed = false;
  bool orders_memory = false;  // of the lanes: bar.warp.sync; shuffles, votes and mma do not
  int target = -1;             // of a branch; else a small number specific to the instruction
  s64 offset = 0;              // added to an address
  const Statement* source = nullptr;
};

/// A cp.async of some lanes, from issue to wait_group.
struct Copy {
  const Instruction* by;
  u32 mask;
  u32 bytes;
  u64 to[32];
  u8 data[32][16];
};

struct Group {  // lanes at the same instruction
  int pc;
  u32 mask;
  bool waiting;
};

struct Block;

struct Warp {
  enum State : u8 { ready, at_barrier, done };
  u8* registers = nullptr;
  u32* valid = nullptr;  // of each register: the lanes that have set it
  Block* block = nullptr;
  int id = 0;
  State state = ready;
  u32 lanes = all_lanes;  // of the launch: the last warp may have fewer
  u32 alive = 0;
  u32 epoch = 0;  // synchronizations within the warp
  int barrier = 0, barrier_threads = 0;
  const Instruction* at = nullptr;
  std::vector<Group> groups;
  std::vector<std::vector<Copy>> copies;  // committed groups, oldest first
  std::vector<Copy> open;

  template <class T>
  T* lane(u32 offset) {
    return reinterpret_cast<T*>(registers + offset);
  }
  u32& mask(u32 offset) { return *reinterpret_cast<u32*>(registers + offset); }
};

/// d[l] = f(l) for the lanes of the mask.
template <class T, class F>
inline void each_lane(Warp& w, u32 d, u32 mask, F&& f) {
  T* const to = w.lane<T>(d);
  if (mask == all_lanes) {
#pragma GCC ivdep
    for (int l = 0; l < 32; ++l) to[l] = f(l);
  } else {
    alignas(64) T value[32];
#pragma GCC ivdep
    for (int l = 0; l < 32; ++l) value[l] = f(l);
#pragma GCC ivdep
    for (int l = 0; l < 32; ++l) to[l] = (mask >> l) & 1 ? value[l] : to[l];
  }
}

/// The mask of the lanes for which test(l) holds.
template <class F>
inline u32 lanes_where(F&& test) {
  alignas(32) u8 yes[32];
#pragma GCC ivdep
  for (int l = 0; l < 32; ++l) yes[l] = test(l) ? 1 : 0;
  u32 mask = 0;
  for (int i = 0; i < 4; ++i) {  // a product gathers the low bits of eight bytes
    u64 eight;
    std::memcpy(&eight, yes + 8 * i, 8);
    mask |= u32((eight * 0x0102040810204080ull) >> 56) << (8 * i);
  }
  return mask;
}

inline void set_predicate(Warp& w, u32 d, u32 mask, u32 value) {
  u32& to = w.mask(d);
  to = (to & ~mask) | (value & mask);
}

template <class F>
inline void for_lanes(u32 mask, F&& f) {
  for (; mask; mask &= mask - 1) f(__builtin_ctz(mask));
}

// The handlers of statements, or nullptr if the statement belongs to another function.
// arithmetic.cpp, convert.cpp, memory.cpp, collective.cpp, mma.cpp.
Handler arithmetic_handler(const Statement&);
Handler integer_handler(const Statement&);
Handler convert_handler(const Statement&, int to_register_bytes, int from_register_bytes);
Handler memory_handler(const Statement&, Instruction&);
Handler collective_handler(const Statement&, Instruction&);
Handler matrix_product(const Statement&);

}  // namespace interpreter
