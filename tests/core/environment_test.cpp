#include "core/environment.h"

#include <cstdlib>
#include <string>
#include <utility>

#include "core/error.h"
#include "tests/support/catch.h"
#include "tests/support/error_of.h"

using namespace stretto;
using std::string;
using stretto::testing::error_of;

namespace {

constexpr const char* variable = "STRETTO_ENVIRONMENT_TEST";

struct Variable {
  explicit Variable(const string& text) { ::setenv(variable, text.c_str(), 1); }
  ~Variable() { ::unsetenv(variable); }
};

int64_t number(const string& text) {
  const Variable set(text);
  return environment_number(variable, 1, 256, 7);
}

constexpr const char* accepted[] = {"attention", "spe"};
bool lists(const string& text, const char* entry) {
  const Variable set(text);
  return environment_lists(variable, entry, accepted);
}

}  // namespace

TEST_CASE("a numeric environment variable is parsed completely or rejected") {
  CHECK(environment_number(variable, 1, 256, 7) == 7);
  CHECK(number("") == 7);
  CHECK(number("1") == 1);
  CHECK(number("256") == 256);
  CHECK(number("007") == 7);
  for (const char* text : {"abc", "0", "-1", "257", "1.5", "1e2", "1e9", " 4", "4 ", "+4", "0x4",
                           "99999999999999999999", "4,2", "1\n", "nan", "٣"})
    CHECK(error_of<Error>([&] { number(text); }) ==
          "[environment] STRETTO_ENVIRONMENT_TEST is \"" + string(text) +
              "\"; it must be a whole number from 1 to 256, or not be set");
}

TEST_CASE("a list in an environment variable accepts only known entries") {
  CHECK_FALSE(environment_lists(variable, "spe", accepted));
  CHECK_FALSE(lists("", "spe"));
  CHECK(lists("spe", "spe"));
  CHECK(lists("attention,spe", "spe"));
  CHECK(lists("spe,spe", "spe"));
  CHECK_FALSE(lists("attention", "spe"));
  struct Wrong {
    string text, entry;
  };
  for (const Wrong& w : {Wrong{"spes", "spes"},
                         {"spe,sp", "sp"},
                         {"foo,spe", "foo"},
                         {"spe, attention", " attention"},
                         {",spe", ""},
                         {"SPE", "SPE"}})
    CHECK(error_of<Error>([&] { lists(w.text, "spe"); }) ==
          "[environment] STRETTO_ENVIRONMENT_TEST contains \"" + w.entry +
              "\"; accepted, separated by commas: attention, spe");
}
