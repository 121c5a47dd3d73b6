// Runs the example programs with mpirun.
#pragma once

#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "tests/examples/program.h"

namespace stretto::examples::testing {

inline const std::string env = "/usr/bin/env";

/// Returns arguments of `env`: `settings`, then mpirun with `command`. As a user would type it,
/// plus options that allow root and fewer cores, and a time-out for runs that hang.
inline std::vector<std::string> mpirun(const std::vector<std::string>& settings,
                                       const std::vector<std::string>& command) {
  std::vector<std::string> all = settings;
  all.insert(all.end(), {"OMPI_ALLOW_RUN_AS_ROOT=1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1",
                         "STRETTO_NUM_THREADS=1"});
  all.insert(all.end(), {"mpirun", "--oversubscribe", "--timeout", "300"});
  all.insert(all.end(), command.begin(), command.end());
  return all;
}

/// A program and its settings in addition to those of all cases of a test.
struct Case {
  const char* program;
  std::vector<std::string> settings;
};

/// Sends a signal to process `number` (0, 1, …) of mpirun whose command contains `part`.
inline void signal_process(const Program& mpirun, const std::string& signal,
                           const std::string& part, int number) {
  run("/bin/sh",
      {"-c", "kill -" + signal + " $(pgrep -f '" + part + "' -P " + std::to_string(mpirun.pid()) +
                 " | sed -n " + std::to_string(number + 1) + "p)"});
}

/// Returns the bytes of the checkpoint in a directory; empty if there is none.
inline std::string checkpoint_bytes(const std::string& folder) {
  std::ifstream file(folder + "/checkpoint.safetensors", std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

inline int64_t lines_with(const std::string& text, const std::string& part) {
  int64_t n = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++n;
  return n;
}

inline bool has_mpirun() { return run(env, {"mpirun", "--version"}).status == 0; }
constexpr const char* no_mpirun = "mpirun is not installed (Debian: openmpi-bin)";

}  // namespace stretto::examples::testing
