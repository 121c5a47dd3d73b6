// Finds files of the repository from any working directory.
#pragma once

#include <filesystem>
#include <string>

namespace stretto::testing {

/// Returns the nearest existing `relative` in the current directory or one of its parents, else in
/// a parent of this source file; empty if there is none.
std::filesystem::path find_upwards(const std::string& relative);

}  // namespace stretto::testing
