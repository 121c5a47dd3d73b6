// What the interpreter knows about memory, and its verdicts when a kernel breaks a rule.
//
// Device memory is three flat address ranges that correspond: the one programs see, which cannot be
// accessed (as on a machine with a GPU), its bytes, and one state per byte. Addresses are never
// reused, so that accesses to freed memory are detected. For each byte that the running launch
// accesses, the last block that wrote it and the blocks that read it are recorded.
#pragma once

#include <map>
#include <set>
#include <string>

#include "ptx.h"

namespace interpreter {

/// Windows of generic addresses; no pointer of a program is in them.
inline constexpr u64 shared_window = u64(1) << 56, local_window = u64(2) << 56,
                     param_window = u64(3) << 56, window_mask = u64(0xff) << 56;

enum State : u8 { absent = 0, unwritten = 1, written = 2 };

/// CUDA's codes of the errors that the interpreter returns.
enum Error : int {
  success = 0,
  invalid_value = 1,
  out_of_memory = 2,
  invalid_configuration = 9,
  invalid_device_pointer = 17,
  invalid_copy_direction = 21,
  invalid_symbol = 13,
  invalid_device = 101,
  invalid_handle = 400,
  initialization_error = 3,
  insufficient_driver = 35,
  no_device = 100,
  invalid_function = 98,
  illegal_address = 700,
  misaligned_address = 716,
  launch_failure = 719,
  capture_unsupported = 900,
  capture_invalidated = 901,
  capture_implicit = 906,
  captured_event = 907,
};

/// Ends a launch after a verdict; has CUDA's error code.
struct Fault {
  Error code;
};

/// Prints "ptx: <text>". A process with a verdict exits with this status.
inline constexpr int verdict_status = 86;
void verdict(const std::string& text);
std::string hex(u64 x);

class DeviceMemory {
 public:
  static DeviceMemory& get();
  u64 allocate(u64 bytes);  // 0: out of memory
  static u64 limit();       // PTX_MEMORY GiB, read each time; default: 1
  bool release(u64 address);
  bool owns(u64 address) const { return address - base < size; }
  /// The bytes at an address of the device.
  u8* bytes(u64 address) { return data + (address - base); }
  void mark(u64 address, u64 n, State state);
  /// The first of n bytes that is not allocated, or n.
  u64 allocated(u64 address, u64 n) const;
  /// "4 bytes past the end of the 400 bytes at 0x…".
  std::string place(u64 address) const;
  /// The block that contains an address: its begin and its end.
  std::pair<u64, u64> block(u64 address) const;

  u64 base = 0, size = 0;
  u8 *data = nullptr, *state = nullptr;
  u32 *writer = nullptr, *reader = nullptr;  // by (address − base) >> granule
  u64 live = 0, peak = 0;                    // bytes allocated, now and at most

 private:
  DeviceMemory();
  bool is_sparse(u64 bytes) const { return bytes > u64(1) << 30; }
  struct Allocation {
    u64 bytes;
    bool freed;
  };
  std::map<u64, Allocation> allocations_;
  u64 next_ = 0;
};

/// The counters of a kernel, over all its launches.
struct Counters {
  u64 launches = 0, blocks = 0;
  u64 registers = 0;                  // per thread, from ptxas; 0: there is only PTX
  u64 threads = 0, shared_bytes = 0;  // per block, at most
  u64 instructions[11] = {};          // of a warp, by Pipe
  // The same by sixteenth of the grid, in the order in which blocks begin; with
  // fewer blocks, by block.
  static constexpr u64 shares = 16;
  u64 work[shares] = {};
  u64 diverged = 0;  // branches that split a warp
  u64 barriers = 0, warp_synchronizations = 0;
  struct Global {
    u64 requests = 0, bytes = 0, sectors = 0, unique_bytes = 0;
  } load, store;
  u64 load_missed = 0;     // sectors that missed the first-level cache (cache.h)
  u64 copied_sectors = 0;  // of the loaded ones: by cp.async, to shared memory
  u64 shared_requests = 0, shared_wavefronts = 0, shared_ideal = 0;
  u64 local_requests = 0, atomics = 0;
  double microseconds = 0;           // of the interpreter itself
  std::map<std::string, u64> lines;  // instructions of a warp, by line of the source and opcode
};
std::map<std::string, Counters>& counters();
/// True if lines are counted: PTX_LINES is set.
bool counting_lines();
/// True if counters are read: PTX_COUNTERS is set, or they were reset. Else load_missed stays 0.
bool& counting();

/// The products of cuBLAS, by the type of their operands: they run as plain loops, so that there is
/// nothing else to count.
struct Products {
  u64 calls = 0, multiply_adds = 0, bytes = 0;  // operands and results, each once
};
std::map<std::string, Products>& products();

/// The process's transfers over the bus.
struct Traffic {
  u64 uploads = 0, upload_bytes = 0, downloads = 0, download_bytes = 0, synchronizations = 0;
};
Traffic& traffic();

}  // namespace interpreter
