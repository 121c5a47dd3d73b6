// Our programs as processes of mpirun.
#pragma once

#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "tests/examples/program.h"

namespace stretto::examples::testing {

inline const std::string env = "/usr/bin/env";

/// Arguments of `env`, `settings` first: the command as the user types it, but for what lets it run
/// as root and on fewer cores, and ends a run that hangs, so that the test says which.
inline std::vector<std::string> mpirun(const std::vector<std::string>& settings,
                                       const std::vector<std::string>& command) {
  std::vector<std::string> all = settings;
  all.insert(all.end(), {"OMPI_ALLOW_RUN_AS_ROOT=1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1",
                         "STRETTO_NUM_THREADS=1"});
  all.insert(all.end(), {"mpirun", "--oversubscribe", "--timeout", "300"});
  all.insert(all.end(), command.begin(), command.end());
  return all;
}

/// A program and what it is given beside what all cases of a test are given.
struct Case {
  const char* program;
  std::vector<std::string> settings;
};

/// Signals the process of mpirun's whose number this is, of those whose command has `part`: 0, 1, …
inline void signal_process(const Program& mpirun, const std::string& signal,
                           const std::string& part, int number) {
  run("/bin/sh",
      {"-c", "kill -" + signal + " $(pgrep -f '" + part + "' -P " + std::to_string(mpirun.pid()) +
                 " | sed -n " + std::to_string(number + 1) + "p)"});
}

/// The checkpoint in a folder; empty where there is none.
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
constexpr const char* no_mpirun = "there is no mpirun here (Debian: openmpi-bin)";

}  // namespace stretto::examples::testing
