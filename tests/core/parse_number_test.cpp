// Numbers parsed from text [core/parse_number.h].
#include "core/parse_number.h"

#include <bit>
#include <charconv>
#include <clocale>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "core/random.h"
#include "tests/support/catch.h"

namespace stretto {
namespace {

std::string shortest(double value) {
  char text[40];
  return {text, std::to_chars(text, text + sizeof text, value).ptr};
}

}  // namespace

TEST_CASE("What to_chars writes is parsed back bit for bit", "[core]") {
  using limits = std::numeric_limits<double>;
  std::vector<double> values{0.0,
                             -0.0,
                             1.0 / 3,
                             1e23,
                             limits::max(),
                             limits::lowest(),
                             limits::min(),
                             limits::denorm_min(),
                             limits::infinity(),
                             -limits::infinity()};
  for (uint64_t i = 0; i < 2000; ++i) {
    const Random4 bits = philox({.seed = 1}, i);
    const double value = std::bit_cast<double>(uint64_t(bits.v[0]) << 32 | bits.v[1]);
    if (std::isfinite(value)) values.push_back(value);
  }
  for (const double value : values) {
    INFO(shortest(value));
    const std::optional<double> read = parse_double(shortest(value));
    REQUIRE(read);
    CHECK(std::bit_cast<uint64_t>(*read) == std::bit_cast<uint64_t>(value));
  }
  CHECK(std::isnan(parse_double("nan").value()));
  CHECK(std::isnan(parse_double("-nan").value()));
}

TEST_CASE("A number must be the whole text", "[core]") {
  CHECK(parse_double("2.") == 2.0);
  CHECK(parse_double("-.5") == -0.5);
  CHECK(parse_double("012.50E+01") == 125.0);
  CHECK(parse_double("Inf") == std::numeric_limits<double>::infinity());
  CHECK(parse_double("-INFINITY") == -std::numeric_limits<double>::infinity());
  CHECK(parse_double("0e-400") == 0.0);
  CHECK(parse_double(std::string(400, '0') + "1") == 1.0);
  for (const char* text : {"",       "-",     "+1",     " 1",  "1 ",   ".",     "-.e1",  "1e",
                           "1e+",    "1e1.",  "--1",    "1,5", "1.5x", "0x10",  "1e400", "-1e309",
                           "1e-400", "infin", "nan(1)", "i",   "1e5e", "1.2.3", "n\x81n"}) {
    INFO(text);
    CHECK_FALSE(parse_double(text));
  }
  CHECK_FALSE(parse_double(std::string_view("1\0", 2)));
  CHECK(parse_double(std::string_view("12", 1)) == 1.0);
}

// Programs may set the locale, which strtod follows. Without an installed locale of this kind, the
// test runs in C.
TEST_CASE("Numbers are parsed the same in every locale", "[core]") {
  for (const char* name : {"de_DE.UTF-8", "fr_FR.UTF-8", "C"}) {
    if (!std::setlocale(LC_ALL, name)) continue;
    CHECK(parse_double("1.5") == 1.5);
    CHECK_FALSE(parse_double("1,5"));
    std::setlocale(LC_ALL, "C");
  }
}

}  // namespace stretto
