// Faults in the example programs.
#pragma once

#include <cstdint>
#include <string>

namespace stretto::testing {

struct ProgramFaults {
  std::string program;  // one of the six; all when empty
  int faults = 84;      // in each
  uint64_t seed = 1;
  std::string library;  // of preload/faults.cpp
};

/// Tiny runs meet failing memory, writes, fsyncs, renames and opens, and signals, at random points
/// of a fresh run or of one that is resumed. None may crash, hang or lose its checkpoint, and with
/// --resume, or from the beginning where there is no checkpoint yet, each must end with the
/// checkpoint of an undisturbed run, byte for byte. Prints a table; returns the number of
/// complaints.
int fail_programs(const ProgramFaults& options);

}  // namespace stretto::testing
