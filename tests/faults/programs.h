// Fault injection in the example programs.
#pragma once

#include <cstdint>
#include <string>

namespace stretto::testing {

struct ProgramFaults {
  std::string program;  // one of the six programs; all if empty
  int faults = 84;      // number of faults in each program
  uint64_t seed = 1;
  std::string library;  // path of the library of preload/faults.cpp
};

/// Injects failures of memory, write, fsync, rename and open, and signals, at random points of
/// tiny runs, new and resumed ones. No run may crash, hang or lose its checkpoint. Continued
/// with --resume, or restarted if there is no checkpoint yet, each run must end with a
/// checkpoint that is byte-identical to that of an undisturbed run. Prints a table; returns the
/// number of complaints.
int fail_programs(const ProgramFaults& options);

}  // namespace stretto::testing
