// Files that are not text, byte order marks, and lines of tables.

#include "examples/common/text_file.h"

#include <string>
#include <vector>

#include "core/known_format.h"
#include "examples/common/error.h"
#include "tests/examples/temp_dir.h"
#include "tests/support/catch.h"

namespace {

using namespace stretto::examples;           // NOLINT
using namespace stretto::examples::testing;  // NOLINT
using stretto::known_format;

const std::string mark = "\xEF\xBB\xBF";

std::vector<std::string> lines_of(const std::string& bytes) {
  std::vector<std::string> lines;
  each_line(bytes, "x", [&](std::string_view line, int64_t number) {
    lines.emplace_back(line);
    CHECK(number == int64_t(lines.size()));
  });
  return lines;
}

}  // namespace

TEST_CASE("formats that are not text are recognized by their first bytes", "[examples]") {
  const auto bytes = [](std::string text) { return text.append(300, 'x'); };
  CHECK(known_format(bytes("\x1F\x8B\x08")) == "gzip-compressed");
  CHECK(known_format(bytes("BZh91AY&SY")) == "bzip2-compressed");
  CHECK(known_format(bytes(std::string("\xFD\x37zXZ\0", 6))) == "xz-compressed");
  CHECK(known_format(bytes("\x28\xB5\x2F\xFD")) == "zstd-compressed");
  CHECK(known_format(bytes("PK\x03\x04")) == "a zip archive");
  CHECK(known_format(std::string(257, 'a') + "ustar") == "a tar archive");
  CHECK(known_format("version https://git-lfs.github.com/spec/v1\noid sha256:1\n") ==
        "a Git LFS pointer");
  CHECK(known_format(std::string("\xFF\xFE"
                                 "a\0",
                                 4)) == "UTF-16 text");
  CHECK(known_format(std::string("\xFF\xFE\0\0", 4)) == "UTF-32 text");
  CHECK(known_format("\x80\x04list.") == "a Python pickle");
  CHECK(known_format("PAR1 12345678 PAR1") == "a Parquet file");
  for (const std::string text :
       {"", "text", "PK", "BZh9 is a word", "PAR1 begins", "%PD", "\x1F", "\xC3\xA9t\xC3\xA9"})
    CHECK(known_format(text).empty());
  CHECK(known_format(mark + "text").empty());
  CHECK(error_of<UsageError>([] { refuse_known_format("%PDF-1.7", "a.txt", "text"); }) ==
        "a.txt: is a PDF document; expected text");
}

TEST_CASE("lines of a table exclude a byte order mark and empty last lines", "[examples]") {
  using Lines = std::vector<std::string>;
  CHECK(lines_of("").empty());
  CHECK(lines_of(mark).empty());
  for (const char* end : {"", "\n", "\r\n", "\n\n", "\r\n\r\n\n", "\n\r"})
    for (const std::string& start : {std::string(), mark, mark + mark})
      CHECK(lines_of(start + "a\r\n\n" + mark + "b" + end) == Lines{"a", "", mark + "b"});
  CHECK(lines_of("\n\na\r\r\n") == Lines{"", "", "a\r"});

  const auto refused = [](const std::string& bytes, int64_t at) {
    return error_of<UsageError>([&] {
      each_line(bytes, "x", [&](std::string_view, int64_t number) {
        if (number == at) throw UsageError("wrong");
      });
    });
  };
  CHECK(refused("a\nb\n", 2) == "wrong");
  const std::string binary("\x01\x02\0\x03\nb", 6);
  CHECK(refused(binary, 1) == "x: is binary (byte 2 is 0); expected a tab-separated table");
  CHECK(refused(binary, 2) == "wrong");  // a zero byte in a valid table
  CHECK(refused("PK\x03\x04", 9) == "x: is a zip archive; expected a tab-separated table");
}

TEST_CASE("commas and semicolons instead of tabs are reported", "[examples]") {
  CHECK(csv_hint("a,b,c", 3) == "; it looks like CSV, with commas in place of tabs");
  CHECK(csv_hint("a;b;c", 3) == "; it looks like CSV, with semicolons in place of tabs");
  CHECK(csv_hint("a,b", 3).empty());
  CHECK(csv_hint("a,b,c\td", 3).empty());
}
