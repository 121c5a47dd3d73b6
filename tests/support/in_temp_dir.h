// A temporary directory as the current one.
#pragma once

#include <filesystem>

#include "tests/support/temp_dir.h"

namespace stretto::testing {

// A temporary directory is the current one while it lives.
struct InTempDir {
  InTempDir() { std::filesystem::current_path(folder.str()); }
  ~InTempDir() {
    std::error_code ignored;
    std::filesystem::current_path(before, ignored);
  }
  const TempDir folder;
  const std::filesystem::path before = std::filesystem::current_path();
};

}  // namespace stretto::testing
