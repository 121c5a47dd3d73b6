// What goes between the host and the GPU, as tests/cuda/ptx counts it.
#pragma once

#include <dlfcn.h>

#include <cstdint>
#include <cstdlib>
#include <optional>
#include <string>

#include "core/device.h"
#include "tests/support/catch.h"

namespace stretto::testing {

struct Traffic {
  int64_t uploads, downloads, synchronizations;

  Traffic operator-(const Traffic& o) const {
    return {uploads - o.uploads, downloads - o.downloads, synchronizations - o.synchronizations};
  }
};

/// Of a table of the machine's counters.
inline Traffic traffic_in(const std::string& counters) {
  const auto count = [&](const std::string& name) {
    const size_t at = counters.find("\n" + name + "\t");
    REQUIRE(at != std::string::npos);
    return int64_t(std::stoll(counters.substr(at + name.size() + 2)));
  };
  return {count("uploads"), count("downloads"), count("synchronizations")};
}

/// All of it so far; nothing on a real GPU, where nobody counts.
inline std::optional<Traffic> traffic() {
  using Counters = const char* (*)();
  static const auto counters = reinterpret_cast<Counters>(dlsym(RTLD_DEFAULT, "ptx_counters"));
  if (!counters) return {};
  return traffic_in(counters());
}

}  // namespace stretto::testing

/// Leaves a test that makes its tensors on the machine and would need minutes there; with
/// STRETTO_SLOW_TESTS=1 it runs all the same.
#define STRETTO_NOT_ON_MACHINE()                                                \
  if (::stretto::default_device().is_cuda() && ::stretto::testing::traffic() && \
      !std::getenv("STRETTO_SLOW_TESTS"))                                       \
  STRETTO_SKIP("minutes on tests/cuda/ptx; STRETTO_SLOW_TESTS=1 runs it all the same")
