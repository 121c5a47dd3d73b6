// Our programs as processes of mpirun.
#pragma once

#include <string>
#include <vector>

#include "tests/examples/program.h"

namespace stretto::examples::testing {

inline const std::string env = "/usr/bin/env";

/// Arguments of `env`, `settings` first: the command as the user types it, but for what lets it run
/// as root and on fewer cores.
inline std::vector<std::string> mpirun(const std::vector<std::string>& settings,
                                       const std::vector<std::string>& command) {
  std::vector<std::string> all = settings;
  all.insert(all.end(), {"OMPI_ALLOW_RUN_AS_ROOT=1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1",
                         "STRETTO_NUM_THREADS=1"});
  all.insert(all.end(), {"mpirun", "--oversubscribe"});
  all.insert(all.end(), command.begin(), command.end());
  return all;
}

inline bool has_mpirun() { return run(env, {"mpirun", "--version"}).status == 0; }
constexpr const char* no_mpirun = "there is no mpirun here (Debian: openmpi-bin)";

}  // namespace stretto::examples::testing
