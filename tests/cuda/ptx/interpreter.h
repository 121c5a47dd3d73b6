// A decoded kernel, and a block of threads that runs it.
//
// Blocks run one after the other. The warps of a block take turns: each runs until it waits at a
// barrier or, in random order, for a random number of instructions. In a warp the lanes with the
// lowest program counter run first; lanes join when their program counters meet. Instructions that
// need several lanes wait for them.
#pragma once

#include <memory>
#include <random>

#include "cache.h"
#include "warp.h"
#include "watch.h"

namespace interpreter {

struct Dim3 {
  u32 x = 1, y = 1, z = 1;
  u64 count() const { return u64(x) * y * z; }
};

struct Kernel {
  struct Param {
    u64 offset, size;
  };
  struct Special {  // a special register and the offset of its lanes
    std::string name;
    u32 offset;
  };

  const Function* function = nullptr;
  std::string name;  // demangled
  std::vector<Instruction> code;
  std::vector<Param> params;
  u64 param_bytes = 0, shared_bytes = 0, local_bytes = 0;
  u64 dynamic_shared = 0;  // where dynamic shared memory begins
  u64 max_threads = 1024;  // of a block
  u32 register_bytes = 0;
  struct Number {  // a register that holds a constant
    u32 offset;
    int bytes;
    u64 value;
  };
  std::vector<Number> numbers;
  std::vector<Special> specials;
  std::vector<u32> valid;               // the initial `valid` mask of each register
  int granule = 2, shared_granule = 2;  // log2 of the smallest access
  Counters* counters = nullptr;
  std::vector<u64> executed;  // per instruction

  std::vector<std::unique_ptr<u32[]>> lists;  // that instructions point to
  std::vector<std::unique_ptr<u16[]>> valid_lists;
};

/// Decodes a kernel. `symbols` has the device addresses of the module's variables.
std::unique_ptr<Kernel> decode(Module& module, const std::string& name,
                               const std::map<std::string, u64>& symbols);

enum class Order : u8 { forwards, backwards, random };
/// PTX_ORDER: forwards, backwards, random or random:SEED.
struct Schedule {
  Order order = Order::forwards;
  std::mt19937_64 random;
};
Schedule& schedule();

struct Launch {
  Kernel& kernel;
  Dim3 grid, block;
  u64 dynamic_shared = 0;
  const u8* params = nullptr;
  u64 last_blocks = ~u64(0);  // of the grid; the blocks before them are left out
};
/// Runs a kernel; throws Fault after a verdict: the kernel has broken a rule.
void run(const Launch&);

struct Used {  // a block of device memory
  u64 begin = 0, end = 0;
  bool writes = false;
};

struct Block {
  explicit Block(const Launch&);
  void start(u32 x, u32 y, u32 z);
  void run();

  /// Records, for the order of streams, that a block of device memory is read or written.
  void use(u64 address, bool writes) {
    Used& last = used[address >> 12 & 15];
    if (address < last.begin || address >= last.end || (writes && !last.writes))
      note(address, writes);
  }

  /// Prints the verdict with the instruction and a lane's thread, and ends the launch.
  [[noreturn]] void fail(const Instruction&, const Warp&, int lane, const std::string& what,
                         Error code = launch_failure);

  const Launch& launch;
  Kernel& kernel;
  Counters& counters;
  u32 threads;
  u32 index[3] = {};
  u32 tag = 0, launch_tag = 0;  // of this block; the lowest of this launch
  u64 epoch = 0;                // of barriers; never reused
  std::vector<Warp> warps;
  u64 shared_bytes = 0;
  std::vector<u8> shared, shared_state, local, local_state, param_state;
  std::vector<u64> shared_writer, shared_reader;
  Used used[16];  // recently
  Caches& caches;

 private:
  struct Turn;
  enum class After : u8;
  void note(u64 address, bool writes);
  void run_warp(Warp&, u64 steps);
  void execute(const Instruction&, Warp&, u32 m);
  After branch(Turn&, const Instruction&, u32 m);
  After exit(Turn&, u32 m);
  After branch_by_table(Turn&, const Instruction&, u32 m);
  After run_together(Turn&, const Instruction&, u32 m);
  bool ready(Warp&, Group&, const Instruction&);
  bool release_barriers();
  void reduce_at_barrier(int barrier);
  void diverged(Warp&);
  void set_special(Warp&, const Kernel::Special&);
  std::vector<u8> registers_;
  std::vector<u32> valid_;
};

/// The demangled name, shortened.
std::string readable(const std::string& symbol);

}  // namespace interpreter
