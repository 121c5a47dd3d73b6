// Where the tests find real data, which no build needs.
#pragma once

#include <cstdlib>
#include <filesystem>
#include <string>

#include "tests/support/catch.h"
#include "tests/support/find_upwards.h"

namespace stretto::examples::testing {

/// The path of `name` in the data folder: $STRETTO_DATA, or the nearest shared/data upwards.
inline std::string data_path(const std::string& name) {
  if (const char* folder = std::getenv("STRETTO_DATA")) return folder + ("/" + name);
  const std::filesystem::path found = stretto::testing::find_upwards("shared/data");
  return (found.empty() ? "../shared/data" : found.string()) + "/" + name;
}

}  // namespace stretto::examples::testing

/// Leaves the running test, which then counts as skipped, where a file or folder is missing.
#define STRETTO_NEEDS_DATA(path)      \
  if (!std::filesystem::exists(path)) \
  STRETTO_SKIP(std::string(path) +    \
               " is missing (STRETTO_DATA names the data folder, else ../shared/data)")
