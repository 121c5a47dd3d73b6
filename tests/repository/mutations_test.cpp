// The lists of faults that tests/cuda/ptx/scripts/mutations.sh and tests/mutations/library.sh plant: a
// list that no longer matches the sources plants nothing.
#include <catch2/catch.hpp>
#include <sstream>

#include "tests/support/sources.h"

namespace stretto {

TEST_CASE("Every fault to be planted is found in its source", "[repository]") {
  for (const char* list : {"host", "kernels"}) {
    std::istringstream lines(
        testing::text_of(std::string("tests/cuda/ptx/mutations/") + list + ".txt"));
    size_t entries = 0;
    for (std::string line; std::getline(lines, line);) {
      if (line.empty() || line[0] == '#') continue;
      std::istringstream words(line);
      std::string file, unit, tests, from, to;
      words >> file >> unit >> tests;
      std::getline(lines, from);
      std::getline(lines, to);
      INFO(list << ": " << line << "\n" << from);
      REQUIRE(from.starts_with("- "));
      REQUIRE(to.starts_with("+"));
      CHECK(testing::text_of(file).find(from.substr(2)) != std::string::npos);
      std::istringstream names(tests);
      for (std::string name; std::getline(names, name, ',');)
        CHECK(!testing::text_of("tests/cuda/" + name + ".cpp").empty());
      ++entries;
    }
    CHECK(entries > 20);
  }
}

TEST_CASE("Every fault of the CPU code to be planted is found in its source", "[repository]") {
  std::istringstream lines(testing::text_of("tests/mutations/library.txt"));
  size_t entries = 0;
  for (std::string line; std::getline(lines, line);) {
    if (line.empty() || line[0] == '#') continue;
    const std::string text = testing::text_of(line.substr(0, line.find(' ')));
    std::string from, to;
    std::getline(lines, from);
    std::getline(lines, to);
    INFO(line << "\n" << from);
    REQUIRE(from.starts_with("- "));
    REQUIRE(to.starts_with("+"));
    CHECK(text.find(from.substr(2)) != std::string::npos);
    ++entries;
  }
  CHECK(entries > 20);
}

}  // namespace stretto
