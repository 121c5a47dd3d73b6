// UTF-8.
#include "core/utf8.h"

#include <string>

#include "tests/support/catch.h"

using namespace stretto;  // NOLINT

TEST_CASE("invalid UTF-8 is detected", "[utf8]") {
  CHECK(find_invalid_utf8("").at == 0);
  const std::string good =
      "\x7F\xC2\x80\xDF\xBF\xE0\xA0\x80\xED\x9F\xBF\xEF\xBF\xBF"
      "\xF0\x90\x80\x80\xF4\x8F\xBF\xBF";
  CHECK(find_invalid_utf8(good).at == good.size());
  for (const char* bad : {"\x80", "\xC0\x80", "\xC1\xBF", "\xE0\x9F\xBF", "\xED\xA0\x80",
                          "\xF0\x8F\xBF\xBF", "\xF4\x90\x80\x80", "\xF5\x80\x80\x80", "\xC3",
                          "\xE4\xB8", "\xF0\x9F\x8E", "\xC3(", "\xFF"})
    CHECK(find_invalid_utf8(std::string("ok") + bad).at == 2);
}
