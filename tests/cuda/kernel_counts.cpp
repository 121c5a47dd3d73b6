#include "tests/cuda/kernel_counts.h"

#include <dlfcn.h>

#include <regex>
#include <sstream>

#include "core/error.h"
#include "core/gpu_runtime.h"

namespace stretto::testing {
namespace {

using Text = const char*();
using Reset = void();
template <class F>
F* found(const char* name) {
  return reinterpret_cast<F*>(::dlsym(RTLD_DEFAULT, name));
}

}  // namespace

double KernelCounts::operator[](const std::string& column) const {
  for (const auto& [name, value] : columns)
    if (name == column) return value;
  return fail("kernel_counts", "no column ", column), 0;
}

bool has_counters() { return found<Text>("ptx_counters") != nullptr; }

std::vector<KernelCounts> all_counts() {
  cuda::synchronize(0);
  std::istringstream table(found<Text>("ptx_counters")());
  std::vector<std::string> names;
  std::vector<KernelCounts> all;
  for (std::string line; std::getline(table, line);) {
    std::vector<std::string> cells;
    std::istringstream row(line);
    for (std::string cell; std::getline(row, cell, '\t');) cells.push_back(cell);
    if (names.empty()) {
      names = cells;
    } else if (cells.size() == names.size()) {
      KernelCounts one{cells[0], {}};
      for (size_t i = 1; i < cells.size(); ++i)
        one.columns.emplace_back(names[i], std::stod(cells[i]));
      all.push_back(std::move(one));
    }
  }
  return all;
}

std::vector<KernelCounts> counts_of(const std::function<void()>& run) {
  cuda::synchronize(0);
  found<Reset>("ptx_reset_counters")();
  run();
  std::vector<KernelCounts> all = all_counts();
  std::erase_if(all, [](const KernelCounts& k) { return k["launches"] == 0; });
  return all;
}

Launches launches_of(const std::function<void()>& run) {
  Launches sum;
  // map_kernel<4, Same, float, float> is a copy, map_kernel<4, Same, float, BFloat16> a conversion.
  static const std::regex copy("map_kernel<[0-9]+, Same, ([^,]*), \\1>|copy_tiles<([^,]*), \\2>");
  for (const KernelCounts& k : counts_of(run)) {
    const auto launches = int64_t(k["launches"]);
    sum.all += launches;
    if (std::regex_match(k.kernel, copy)) sum.copies += launches;
  }
  std::istringstream table(found<Text>("ptx_counters")());
  for (std::string line; std::getline(table, line);)
    if (line.starts_with("products of ")) sum.all += std::stoll(line.substr(line.find('\t') + 1));
  return sum;
}

}  // namespace stretto::testing
