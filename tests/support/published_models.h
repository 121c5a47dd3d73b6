// Published models, which tests/published_models.sh downloads.
#pragma once

#include <cstdlib>
#include <filesystem>
#include <string>
#include <system_error>

#include "tests/support/find_upwards.h"

namespace stretto::testing {

/// Returns the path of a file below the folder STRETTO_PUBLISHED_MODELS, or build/published; empty
/// if it does not exist.
inline std::string published_model(const std::string& relative) {
  const char* variable = std::getenv("STRETTO_PUBLISHED_MODELS");
  const std::filesystem::path folder = variable ? variable : find_upwards("build/published");
  std::error_code ignored;
  const std::filesystem::path path = folder / relative;
  return !folder.empty() && std::filesystem::exists(path, ignored) ? path.string() : "";
}

/// Returns the folder of expected values `name` that a script of tests/ has written: the one that
/// `variable` names, or build/NAME; empty if it does not exist.
inline std::string expected_values(const char* variable, const std::string& name) {
  const char* folder = std::getenv(variable);
  const std::filesystem::path path = folder ? folder : find_upwards("build/" + name);
  std::error_code ignored;
  return !path.empty() && std::filesystem::exists(path, ignored) ? path.string() : "";
}

}  // namespace stretto::testing
