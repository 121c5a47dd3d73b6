// The sizes of the components: CONTRIBUTING.md has their budgets.
#include <map>
#include <regex>
#include <string>

#include "core/error.h"
#include "tests/support/catch.h"
#include "tests/support/sources.h"

using stretto::str;

TEST_CASE("Each component stays within its budget of lines", "[repository]") {
  std::map<std::string, size_t> lines;  // by directory
  for (const stretto::testing::Source& file : stretto::testing::sources())
    lines[file.path.substr(0, file.path.find('/'))] += file.lines.size();

  // | `core`, `autograd` | 1,234 |
  static const std::regex row(R"re(\n\| ((?:`[a-z]+`(?:, )?)+) \| ([0-9,]+) \|)re"),
      name("`([a-z]+)`");
  const std::string page = stretto::testing::text_of("CONTRIBUTING.md");
  std::string table;
  for (std::sregex_iterator at(page.begin(), page.end(), row), end; at != end; ++at) {
    const std::string folders = (*at)[1];
    size_t used = 0;
    for (std::sregex_iterator folder(folders.begin(), folders.end(), name); folder != end;
         ++folder) {
      REQUIRE(lines.count((*folder)[1]) == 1);
      used += lines[(*folder)[1]];
      lines.erase((*folder)[1]);
    }
    const size_t budget = std::stoul(std::regex_replace((*at)[2].str(), std::regex(","), ""));
    table += str(folders, ": ", used, " of ", budget, " lines\n");
    INFO(table << "See \"Budgets\" in CONTRIBUTING.md.");
    CHECK(used <= budget);
  }
  INFO("The table of budgets in CONTRIBUTING.md lacks "
       << (lines.empty() ? "" : lines.begin()->first));
  CHECK(lines.empty());
}
