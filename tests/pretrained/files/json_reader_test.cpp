// The reader of JSON objects whose fields must all be used.
#include "pretrained/files/json_reader.h"

#include "core/error.h"
#include "tests/support/catch.h"
#include "tests/support/error_of.h"
#include "tests/support/temp_dir.h"

using namespace stretto;
using nn::files::JsonReader;

namespace {

JsonReader reader(const std::string& text) { return JsonReader::parse("op", "a.json", text); }

template <class F>
std::string error(const std::string& text, const F& use) {
  return testing::error_of<Error>([&] {
    JsonReader r = reader(text);
    use(r);
  });
}
std::string error(const std::string& text) {
  return error(text, [](JsonReader&) {});
}

}  // namespace

TEST_CASE("JsonReader reads fields of all kinds, and null as absent", "[files]") {
  JsonReader r = reader(
      R"({"i": 64.0, "x": 1, "t": true, "s": "a", "one": 3, "many": [1, 2], "list": ["a", "b"],
          "o": {"k": 1}, "rows": [{"k": 1}, {"k": 2}], "none": null, "any": [{}], "unread": null})");
  CHECK(r.integer("i") == 64);
  CHECK(r.number("x") == 1.0);
  CHECK(r.flag("t"));
  CHECK(r.is_text("s"));
  CHECK(r.text("s") == "a");
  CHECK(r.integers("one") == std::vector<int64_t>{3});
  CHECK(r.integers("many") == std::vector<int64_t>{1, 2});
  CHECK(r.texts("list") == std::vector<std::string>{"a", "b"});
  CHECK(r.object("o")->integer("k") == 1);
  std::vector<JsonReader> rows = r.objects("rows");
  REQUIRE(rows.size() == 2);
  CHECK(r.value("any").is_list());
  CHECK_FALSE(r.has("none"));
  CHECK(r.integer("none", 5) == 5);
  CHECK_FALSE(r.object("none"));
  r.finish();
  r = reader("{}");  // readers of inner objects stay valid
  CHECK(rows[1].integer("k") == 2);
}

TEST_CASE("JsonReader refuses unused fields and wrong values in one line", "[files]") {
  CHECK(error("{\"a\": 1, \"b\": \"x\\ny\", \"c\": null}", [](JsonReader& r) {
          r.ignore({"a"});
          r.finish();
        }) == "[op] a.json: these fields are not supported: \"b\" = \"x\\ny\"");
  const std::string text = R"({"i": 1.5, "n": 7, "o": {"k": []}, "l": [1, "a"]})";
  CHECK(error(text, [](JsonReader& r) { r.integer("i"); }) ==
        "[op] a.json: \"i\" is 1.5; expected an integer");
  CHECK(error(text, [](JsonReader& r) { r.integer("n", {}, 0, 6); }) ==
        "[op] a.json: \"n\" is 7; expected an integer of 0 … 6");
  CHECK(error(text, [](JsonReader& r) { r.size("n", {}, 6); }) ==
        "[op] a.json: \"n\" is 7; expected 1 … 6");
  CHECK(error(text, [](JsonReader& r) { r.object("o")->text("k"); }) ==
        "[op] a.json: \"o\": \"k\" is []; expected a text");
  CHECK(error(text, [](JsonReader& r) { r.objects("l"); }) ==
        "[op] a.json: \"l\": must be an object of JSON");
  CHECK(error(text, [](JsonReader& r) { r.flag("absent"); }) ==
        "[op] a.json: the field \"absent\" is missing");
}

TEST_CASE("JsonReader bounds hostile text", "[files]") {
  CHECK(error("[]") == "[op] a.json: must be an object of JSON");
  CHECK(error("{") == "[op] a.json: is not JSON (byte 2)");
  CHECK(error("{\"a\": 1e999}") == "[op] a.json: is not JSON (byte 11)");
  CHECK(error("{\"a\": 1, \"a\": 2}") == "[op] a.json: the field \"a\" occurs twice");
  CHECK(error("{\"a\":" + std::string(100'000, '[')) ==
        "[op] a.json: more than 64 levels of objects and lists");
  std::string many = "{\"a\":[0";
  for (int i = 0; i < 1 << 22; ++i) many += ",0";
  CHECK(error(many + "]}") == "[op] a.json: more than 4194304 values");
  const testing::TempDir dir;
  testing::write_file(dir.file("large"), std::string((16 << 20) + 1, ' '));
  CHECK(testing::error_of<Error>([&] { JsonReader::of_file("op", dir.file("large")); }) ==
        "[op] " + dir.file("large") + ": 16777217 bytes; at most 16777216 allowed");
}
