// Helpers for files and errors in the tests of programs.
#pragma once

#include <filesystem>
#include <set>
#include <string>

#include "tests/support/error_of.h"
#include "tests/support/temp_dir.h"

namespace stretto::examples::testing {

using stretto::testing::entries;
using stretto::testing::error_of;
using stretto::testing::read_file;
using stretto::testing::TempDir;
using stretto::testing::write_file;

/// Returns the names of the files in a directory.
inline std::set<std::string> names_in(const std::string& folder) {
  std::set<std::string> all;
  for (const auto& entry : std::filesystem::directory_iterator(folder))
    all.insert(entry.path().filename().string());
  return all;
}

}  // namespace stretto::examples::testing
