// The layout of the repository: which files include which, and how long files are.
#include <algorithm>
#include <filesystem>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "core/error.h"
#include "tests/support/catch.h"
#include "tests/support/sources.h"

namespace fs = std::filesystem;
using stretto::str;
using stretto::testing::Source;
using stretto::testing::sources;

namespace {

struct Arrow {
  std::string from, to;  // paths
};

// All includes of files of this repository, as paths from the root.
std::vector<Arrow> arrows() {
  std::vector<Arrow> all;
  const std::vector<Source> files = sources();
  std::set<std::string> paths{"stretto.h", "stretto_music.h", "stretto_pretrained.h"};
  for (const Source& file : files) paths.insert(file.path);
  for (const Source& file : files)
    for (const std::string& line : file.lines) {
      if (line.rfind("#include ", 0) != 0) continue;
      std::string to = line.substr(10, line.size() - 11);
      if (to.rfind("stretto/", 0) == 0) to = to.substr(8);  // as users include
      const std::string relative =
          (fs::path(file.path).parent_path() / to).lexically_normal().generic_string();
      if (paths.count(relative))
        all.push_back({file.path, relative});
      else if (paths.count(to))
        all.push_back({file.path, to});
    }
  return all;
}

std::string top_of(const std::string& path) { return path.substr(0, path.find('/')); }

// The entry of `folder` that leads to `path`: a subdirectory with a slash, or the stem of a file;
// "" if `path` is not in `folder`.
std::string part_of(const std::string& folder, const std::string& path) {
  if (path.rfind(folder + "/", 0) != 0) return "";
  const std::string rest = path.substr(folder.size() + 1);
  const size_t slash = rest.find('/');
  if (slash != std::string::npos) return rest.substr(0, slash) + "/";
  std::string stem = rest.substr(0, rest.find('.'));
  if (const size_t at = stem.rfind("_test"); at != std::string::npos && at + 5 == stem.size())
    stem.resize(at);
  return stem;
}

using Graph = std::map<std::string, std::map<std::string, Arrow>>;

// The chain of includes from `from` back to itself, as text; empty if there is none.
std::string cycle(const Graph& graph, const std::string& from) {
  std::set<std::string> seen;
  std::function<std::string(const std::string&)> walk = [&](const std::string& at) -> std::string {
    const auto arrows_of = graph.find(at);
    if (arrows_of == graph.end()) return "";
    for (const auto& [to, arrow] : arrows_of->second) {
      const std::string step = str("\n  ", arrow.from, " includes ", arrow.to);
      if (to == from) return step;
      if (!seen.insert(to).second) continue;
      if (const std::string rest = walk(to); !rest.empty()) return step + rest;
    }
    return "";
  };
  return walk(from);
}

}  // namespace

// The framework includes no component, and no component includes another.
TEST_CASE("Directories include only headers of lower layers", "[repository]") {
  const std::map<std::string, std::set<std::string>> below{
      {"core", {}},
      {"cuda", {"core"}},
      {"autograd", {"core"}},
      {"ops", {"core", "autograd", "cuda"}},
      {"nn", {"core", "autograd", "ops"}},
      {"music", {"core"}},
      {"pretrained", {"core", "autograd", "ops", "nn"}},
      {"examples",
       {"core", "autograd", "ops", "nn", "music", "pretrained", "stretto.h", "stretto_music.h",
        "stretto_pretrained.h"}},
      {"benchmarks",
       {"core", "cuda", "autograd", "ops", "nn", "pretrained", "examples", "stretto.h",
        "stretto_pretrained.h"}},
      {"python", {"core", "autograd", "ops", "nn", "music", "pretrained"}}};
  std::string wrong;
  for (const auto& [from, to] : arrows()) {
    const std::string folder = top_of(from);
    if (folder == "tests" || folder == top_of(to) || below.at(folder).count(top_of(to))) continue;
    wrong += str("\n  ", from, " includes ", to);
  }
  INFO(wrong);
  CHECK(wrong.empty());
}

// tests/threads.cmake compiles nn/ without these directories.
TEST_CASE("Layers and models include nothing of data, files and training", "[repository]") {
  const std::set<std::string> upper{"data/", "files/", "training/"};
  std::string wrong;
  for (const auto& [from, to] : arrows())
    if (top_of(from) == "nn" && !upper.count(part_of("nn", from)) &&
        upper.count(part_of("nn", to)) && from != "nn/distributed/data_parallel_step.cpp")
      wrong += str("\n  ", from, " includes ", to);
  INFO(wrong);
  CHECK(wrong.empty());
}

TEST_CASE("cuda/none.cpp includes every header that declares kernels", "[repository]") {
  std::set<std::string> kernels, with_body;
  for (const Source& file : sources())
    for (const std::string& line : file.lines)
      if (top_of(file.path) == "cuda" && line.find("STRETTO_KERNEL(") != std::string::npos)
        kernels.insert(file.path);
  for (const Arrow& arrow : arrows())
    if (arrow.from == "cuda/none.cpp") with_body.insert(arrow.to);
  for (const char* other : {"cuda/runtime/kernel.h", "cuda/none.cpp"}) kernels.erase(other);
  CHECK(kernels.size() >= 8);
  for (const std::string& file : kernels) {
    INFO(file);
    CHECK(with_body.count(file) == 1);
  }
}

// A quoted include is searched for next to its own file first, then in the include paths, where a
// project that uses the library may have directories of the same names.
TEST_CASE("Public headers include each other by paths relative to themselves", "[repository]") {
  int found = 0;
  for (const Source& file : sources()) {
    const std::string folder = top_of(file.path);
    if (fs::path(file.path).extension() != ".h" || folder == "examples" || folder == "tests" ||
        folder == "benchmarks")
      continue;
    for (const std::string& line : file.lines) {
      if (line.rfind("#include \"", 0) != 0) continue;
      const std::string to = line.substr(10, line.size() - 11);
      const fs::path relative = (fs::path(file.path).parent_path() / to).lexically_normal();
      INFO(file.path << ": " << line);
      CHECK(!stretto::testing::text_of(relative.generic_string()).empty());
      ++found;
    }
  }
  CHECK(found > 250);
}

TEST_CASE("Directories do not include each other in cycles", "[repository]") {
  const std::vector<Arrow> all = arrows();
  REQUIRE(all.size() > 1000);
  std::set<std::string> folders;
  for (const Source& file : sources())
    for (fs::path at = fs::path(file.path).parent_path(); !at.empty(); at = at.parent_path())
      folders.insert(at.generic_string());
  for (const std::string& folder : folders) {
    Graph graph;
    for (const Arrow& arrow : all) {
      const std::string from = part_of(folder, arrow.from), to = part_of(folder, arrow.to);
      if (!from.empty() && !to.empty() && from != to) graph[from].insert({to, arrow});
    }
    for (const auto& [part, to] : graph) {
      if (part.back() != '/') continue;  // files of one directory may include each other
      const std::string chain = cycle(graph, part);
      INFO(folder << "/" << part << chain);
      CHECK(chain.empty());
    }
  }
}

TEST_CASE("Directories of the examples include only headers of lower layers", "[repository]") {
  const std::map<std::string, int> layers{{"common", 0},    {"midi", 1},     {"plot", 1},
                                          {"report", 2},    {"training", 3}, {"text", 4},
                                          {"lra", 4},       {"groove", 4},   {"chorales", 4},
                                          {"published", 5}, {"piano", 5},    {"programs", 6}};
  std::string wrong;
  for (const auto& [from, to] : arrows()) {
    if (top_of(from) != "examples" || top_of(to) != "examples") continue;
    const std::string folder = part_of("examples", from), other = part_of("examples", to);
    if (folder == other || folder.back() != '/') continue;  // a program at the top may use any
    const auto layer = [&](std::string name) { return layers.at((name.pop_back(), name)); };
    if (layer(other) >= layer(folder)) wrong += str("\n  ", from, " includes ", to);
  }
  INFO(wrong);
  CHECK(wrong.empty());
}

TEST_CASE("No source file has more than 500 lines", "[repository]") {
  for (const Source& file : sources()) {
    INFO(file.path);
    CHECK(file.lines.size() <= 500);
  }
}

TEST_CASE("nn/ itself has at most 26 source files", "[repository]") {
  std::map<std::string, int> files;
  for (const Source& file : sources()) ++files[fs::path(file.path).parent_path().generic_string()];
  CHECK(files["nn"] <= 26);
}
