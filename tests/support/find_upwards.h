// Where the tests find files that are not theirs, wherever they run.
#pragma once

#include <filesystem>
#include <string>

namespace stretto::testing {

/// `relative` in the current folder or in one that contains it, else in one that contains this
/// source; the nearest that exists. Empty where there is none.
std::filesystem::path find_upwards(const std::string& relative);

}  // namespace stretto::testing
