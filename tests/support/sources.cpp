#include "tests/support/sources.h"

#include <filesystem>
#include <fstream>
#include <iterator>

#include "tests/support/find_upwards.h"

namespace stretto::testing {

namespace fs = std::filesystem;

namespace {

fs::path root() { return find_upwards("stretto.h").parent_path(); }

}  // namespace

std::vector<Source> sources() {
  std::vector<Source> all;
  for (const char* folder : {"core", "autograd", "ops", "nn", "cuda", "music", "pretrained",
                             "examples", "benchmarks", "python", "tests"})
    for (const auto& entry : fs::recursive_directory_iterator(root() / folder)) {
      const std::string kind = entry.path().extension().string();
      if (kind != ".h" && kind != ".cpp" && kind != ".cu" && kind != ".cuh") continue;
      Source source{fs::relative(entry.path(), root()).generic_string(), {}};
      std::ifstream file(entry.path());
      for (std::string line; std::getline(file, line);) source.lines.push_back(line);
      all.push_back(std::move(source));
    }
  return all;
}

std::string text_of(const std::string& path) {
  std::ifstream file(root() / path);
  return {std::istreambuf_iterator<char>(file), {}};
}

}  // namespace stretto::testing
