// Where the tests find real data, which no build needs.
#pragma once

#include <cstdlib>
#include <string>

namespace stretto::examples::testing {

/// The path of `name` in the data folder: $STRETTO_DATA, or ../shared/data.
inline std::string data_path(const std::string& name) {
  const char* folder = std::getenv("STRETTO_DATA");
  return std::string(folder != nullptr ? folder : "../shared/data") + "/" + name;
}

}  // namespace stretto::examples::testing
