// The files of the house, for tests about the house itself.
#pragma once

#include <string>
#include <vector>

namespace stretto::testing {

struct Source {
  std::string path;  // from the root, with /
  std::vector<std::string> lines;
};

/// C++ and CUDA of all folders.
std::vector<Source> sources();

/// The text of the file at `path` from the root; empty where there is none.
std::string text_of(const std::string& path);

}  // namespace stretto::testing
