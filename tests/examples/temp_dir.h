// A folder for one test's files, and what the tests of programs do with them.
#pragma once

#include <string>

#include "tests/support/temp_dir.h"

namespace stretto::examples::testing {

using stretto::testing::entries;
using stretto::testing::read_file;
using stretto::testing::TempDir;
using stretto::testing::write_file;

/// What the Error that `action` throws says; "(nothing thrown)" if it throws none.
template <typename Error, typename Action>
std::string error_of(const Action& action) {
  try {
    action();
  } catch (const Error& error) {
    return error.what();
  }
  return "(nothing thrown)";
}

}  // namespace stretto::examples::testing
