// The counters of kernels on the PTX interpreter (tests/cuda/ptx).
#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

namespace stretto::testing {

/// The counters of a kernel since the last reset, by column of the interpreter's table.
struct KernelCounts {
  std::string kernel;
  std::vector<std::pair<std::string, double>> columns;
  double operator[](const std::string& column) const;
};
/// True on the PTX interpreter; a GPU has no counters.
bool has_counters();
/// Returns all kernels that the interpreter has decoded; with PTX_DECODE=1 all in the program.
std::vector<KernelCounts> all_counts();
/// Returns the counters of each kernel that `run` launches.
std::vector<KernelCounts> counts_of(const std::function<void()>& run);
/// The number of launches, including products of cuBLAS, and how many of them are copies that
/// change neither values nor dtype.
struct Launches {
  int64_t all = 0, copies = 0;
};
/// Returns the launches of `run`.
Launches launches_of(const std::function<void()>& run);

}  // namespace stretto::testing
