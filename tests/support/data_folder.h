// Finds real data for tests; builds do not need it.
#pragma once

#include <cstdlib>
#include <filesystem>
#include <string>

#include "tests/support/catch.h"
#include "tests/support/find_upwards.h"

namespace stretto::testing {

/// Returns the path of `name` in the data directory: $STRETTO_DATA, or the nearest shared/data in
/// a parent directory.
inline std::string data_path(const std::string& name) {
  if (const char* folder = std::getenv("STRETTO_DATA")) return folder + ("/" + name);
  const std::filesystem::path found = find_upwards("shared/data");
  return (found.empty() ? "../shared/data" : found.string()) + "/" + name;
}

}  // namespace stretto::testing

/// Skips the running test if a file or directory is missing.
#define STRETTO_NEEDS_DATA(path)      \
  if (!std::filesystem::exists(path)) \
  STRETTO_SKIP(std::string(path) +    \
               " is missing (STRETTO_DATA names the data folder, else ../shared/data)")
