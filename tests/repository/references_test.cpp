// Headers of formulas name the reference functions that they are tested against:
//     // Reference: tests/reference/attention.cpp, attention(), attention_weights()
//     // Reference: none (the reason)
#include <regex>
#include <string>

#include "core/error.h"
#include "tests/support/catch.h"
#include "tests/support/sources.h"

using namespace stretto;
using testing::Source;

namespace {

const std::string mark = "// Reference: ";

// What is wrong with a line "// Reference: " + `reference`; empty if it is correct.
std::string fault(const std::string& reference) {
  static const std::regex none(R"(none \(.+\))"), named(R"((tests/reference/[\w/]+\.cpp), (.+))"),
      function(R"((\w+)\(\))");
  std::smatch parts;
  if (std::regex_match(reference, none)) return "";
  if (!std::regex_match(reference, parts, named)) return "cannot be read: " + reference;
  const std::string text = testing::text_of(parts[1]), functions = parts[2];
  if (text.empty()) return "no such file: " + parts[1].str();
  const std::sregex_iterator end;
  for (std::sregex_iterator at(functions.begin(), functions.end(), function); at != end; ++at)
    if (!std::regex_search(text, std::regex("\n[\\w:<>]+ " + (*at)[1].str() + "\\(")))
      return str("no function ", (*at)[1].str(), " in ", parts[1].str());
  return std::regex_search(functions, function) ? "" : "no function: " + reference;
}

}  // namespace

TEST_CASE("Headers of formulas name reference functions that exist", "[repository]") {
  const std::regex formulas("(ops/(attention|fft|spe)|nn/(attention|positions|models))/\\w+\\.h");
  int found = 0;
  for (const Source& file : testing::sources()) {
    if (!std::regex_match(file.path, formulas)) continue;
    INFO(file.path);
    int references = 0;
    for (const std::string& line : file.lines) {
      if (line == "#pragma once") break;
      if (line.rfind(mark, 0) != 0) continue;
      ++references;
      CHECK(fault(line.substr(mark.size())) == "");
    }
    CHECK(references > 0);
    ++found;
  }
  CHECK(found > 20);
}

TEST_CASE("CUDA kernels have a doc comment, and their files say how they are tested",
          "[repository]") {
  int kernels = 0;
  for (const Source& file : testing::sources()) {
    if (file.path.rfind("cuda/", 0) != 0) continue;
    INFO(file.path);
    std::string policy;
    for (const std::string& line : file.lines) {
      if (line.rfind("//", 0) != 0) break;
      policy += line + ' ';
    }
    for (size_t i = 1; i < file.lines.size(); ++i) {
      if (file.lines[i].rfind("__global__ void nothing()", 0) == 0) continue;
      if (file.lines[i].rfind("__global__", 0) != 0) continue;
      INFO(file.lines[i]);
      size_t above = i - 1;
      if (file.lines[above].rfind("template", 0) == 0) --above;
      CHECK(file.lines[above].rfind("/// ", 0) == 0);
      CHECK(policy.find("Tested ") != std::string::npos);
      ++kernels;
    }
  }
  CHECK(kernels > 30);
}

TEST_CASE("References that do not exist are reported", "[repository]") {
  CHECK(fault("none (settings)") == "");
  CHECK(fault("none") == "cannot be read: none");
  CHECK(fault("tests/reference/nowhere.cpp, attention()") ==
        "no such file: tests/reference/nowhere.cpp");
  CHECK(fault("tests/reference/attention.cpp, attention()") == "");
  CHECK(fault("tests/reference/attention.cpp, attention(), inattention()") ==
        "no function inattention in tests/reference/attention.cpp");
  CHECK(fault("tests/reference/attention.cpp, attention") ==
        "no function: tests/reference/attention.cpp, attention");
}
