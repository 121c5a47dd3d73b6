// What kernels did on the PTX interpreter (`tests/cuda/ptx/`), by its counters.
#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

namespace stretto::testing {

/// What a kernel did since the last reset: the interpreter's table, by column.
struct KernelCounts {
  std::string kernel;
  std::vector<std::pair<std::string, double>> columns;
  double operator[](const std::string& column) const;
};
/// True on the PTX interpreter, which counts.
bool has_counters();
/// Every kernel that the interpreter has read: with PTX_DECODE=1 all of the binary.
std::vector<KernelCounts> all_counts();
/// The counters of a run, kernel by kernel.
std::vector<KernelCounts> counts_of(const std::function<void()>& run);

}  // namespace stretto::testing
