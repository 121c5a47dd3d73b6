// Files with one JSON object per line [pretrained/files/json_lines.h].
#include "pretrained/files/json_lines.h"

#include <string>

#include "tests/support/catch.h"
#include "tests/support/temp_dir.h"

using namespace stretto;
using testing::TempDir;

TEST_CASE("read_json_lines: texts as they are, other values as JSON") {
  const TempDir folder;
  const std::string path = folder.file("a.jsonl");
  testing::write_file(path,
                      "{\"q\": \"1 + 1?\\n\", \"n\": 2}\r\n\n  \n"
                      "{\"list\": [1, true, null]}");
  const auto rows = nn::read_json_lines(path);
  REQUIRE(rows.size() == 2);
  CHECK(rows[0] == std::map<std::string, std::string>{{"q", "1 + 1?\n"}, {"n", "2"}});
  CHECK(rows[1].at("list") == "[1,true,null]");
  testing::write_file(path, "");
  CHECK(nn::read_json_lines(path).empty());
}

TEST_CASE("read_json_lines: errors name the line") {
  const TempDir folder;
  testing::write_file(folder.file("list"), "{}\n\n[1]\n");
  testing::write_file(folder.file("cut"), "{\"a\": 1}\n{\"a\": ");
  CHECK_THROWS_WITH(nn::read_json_lines(folder.file("list")),
                    Containing("list, line 3: is a list, not an object"));
  CHECK_THROWS_WITH(nn::read_json_lines(folder.file("cut")),
                    Containing("[read_json_lines] ") && Containing("cut, line 2: "));
  CHECK_THROWS_WITH(nn::read_json_lines(folder.file("none")), Containing("[read_file] "));
}
