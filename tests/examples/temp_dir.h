// Helpers for files and errors in the tests of programs.
#pragma once

#include "tests/support/error_of.h"
#include "tests/support/temp_dir.h"

namespace stretto::examples::testing {

using stretto::testing::entries;
using stretto::testing::error_of;
using stretto::testing::read_file;
using stretto::testing::TempDir;
using stretto::testing::write_file;

}  // namespace stretto::examples::testing
