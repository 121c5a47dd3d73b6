// Copies and synchronizations between host and GPU, as the PTX interpreter counts them.
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

/// Reads the traffic from a table of the PTX interpreter's counters.
inline Traffic traffic_in(const std::string& counters) {
  const auto count = [&](const std::string& name) {
    const size_t at = counters.find("\n" + name + "\t");
    REQUIRE(at != std::string::npos);
    return int64_t(std::stoll(counters.substr(at + name.size() + 2)));
  };
  return {count("uploads"), count("downloads"), count("synchronizations")};
}

/// Returns the traffic so far; nothing on a real GPU, which has no counters.
inline std::optional<Traffic> traffic() {
  using Counters = const char* (*)();
  static const auto counters = reinterpret_cast<Counters>(dlsym(RTLD_DEFAULT, "ptx_counters"));
  if (!counters) return {};
  return traffic_in(counters());
}

}  // namespace stretto::testing

/// Skips a test that takes minutes on the PTX interpreter if that is the default device, unless
/// STRETTO_SLOW_TESTS=1 is set.
#define STRETTO_NOT_ON_MACHINE()                                                \
  if (::stretto::default_device().is_cuda() && ::stretto::testing::traffic() && \
      !std::getenv("STRETTO_SLOW_TESTS"))                                       \
  STRETTO_SKIP("takes minutes on the PTX interpreter; STRETTO_SLOW_TESTS=1 runs it")
