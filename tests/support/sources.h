// The source files of this repository, for tests about the repository itself.
#pragma once

#include <string>
#include <vector>

namespace stretto::testing {

struct Source {
  std::string path;  // from the root, separated by /
  std::vector<std::string> lines;
};

/// Returns all C++ and CUDA files.
std::vector<Source> sources();

/// Returns the text of the file at `path` from the root; empty if it does not exist.
std::string text_of(const std::string& path);

}  // namespace stretto::testing
