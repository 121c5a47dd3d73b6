// Fault injection: makes calls fail and checks the results (library.h, programs.h).
//
//     faults memory | threads | files | address_space
//     faults programs [FAULTS in each, 84] [SEED] [PROGRAM]
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <string>

#include "tests/faults/fault.h"
#include "tests/faults/library.h"
#include "tests/faults/programs.h"

using namespace stretto::testing;  // NOLINT

int main(int argc, char** argv) {
  const std::string what = argc > 1 ? argv[1] : "";
  const bool needs_faults = what == "memory" || what == "threads" || what == "files";
  if (needs_faults && !can_fail()) {
    if (::getenv("LD_PRELOAD")) return std::printf("%s is not loaded\n", STRETTO_FAULTS), 1;
    ::setenv("LD_PRELOAD", STRETTO_FAULTS, 1);
    ::execv("/proc/self/exe", argv);
    return 1;
  }
  int complaints = 0;
  if (what == "memory") {
    complaints = fail_memory();
  } else if (what == "threads") {
    complaints = fail_threads();
  } else if (what == "files") {
    complaints = fail_files();
  } else if (what == "address_space") {
    complaints = fail_address_space();
#ifdef STRETTO_FAULTS_PROGRAMS
  } else if (what == "programs") {
    ProgramFaults options{.library = STRETTO_FAULTS};
    if (argc > 2) options.faults = std::atoi(argv[2]);
    if (argc > 3) options.seed = std::strtoull(argv[3], nullptr, 10);
    if (argc > 4) options.program = argv[4];
    complaints = fail_programs(options);
#endif
  } else if (what == "load") {
    return 0;
  } else if (what == "train") {
    return train_or_complain();
  } else {
    std::printf("usage: faults memory | threads | files | address_space | programs\n");
    return 2;
  }
  std::printf("%d complaints\n", complaints);
  return complaints > 0;
}
