// Pictures as files: contents of SVG and PNG, and writing them.
#include "examples/plot/picture.h"

#include <cstddef>
#include <filesystem>
#include <set>
#include <stdexcept>
#include <string>
#include <vector>

#include "core/error.h"
#include "examples/common/error.h"
#include "examples/plot/canvas.h"
#include "tests/examples/plot/pixels.h"
#include "tests/examples/temp_dir.h"
#include "tests/support/catch.h"

namespace {

using namespace stretto::examples;           // NOLINT
using namespace stretto::examples::testing;  // NOLINT

constexpr Color red{200, 10, 20}, black{0, 0, 0};

const std::string hostile = "a<b> & \"c\" 'd' ]]> </svg> <script>alert(1)</script> &amp;";

Picture with_text(const std::string& text, Font font = Font::regular, int width = 200) {
  return draw(width, 40, text, [&](Canvas& canvas) { canvas.text(4, 28, text, black, font); });
}

/// A picture with all kinds of elements.
Picture of_all_kinds(const std::string& title) {
  return draw(60, 50, title, [](Canvas& canvas) {
    canvas.fill({1, 1, 9, 9}, red);
    canvas.fill({{12, 1, 20, 8}, {40, 1, 10, 8}}, black, 1);
    canvas.line({{0, 20}, {30, 25}, {59, 12}}, red, 2, {0, 0, 60, 30});
    canvas.line({{0, 28}, {59, 28}}, black, 2, {0, 0, 60, 30}, true);
    canvas.pixels(4, 32, 8, 4, [](int x, int y) {
      return Color{std::uint8_t(30 * x), std::uint8_t(60 * y), 7};
    });
    canvas.text(20, 45, "text", black);
  });
}

/// Returns why `xml` is not well-formed, "" if it is. Supports elements, attributes, text and
/// the predefined entities.
std::string malformed(const std::string& xml) {
  const auto text_error = [](const std::string& text) {
    static const std::set<std::string> entities{"lt", "gt", "amp", "quot", "apos"};
    for (std::size_t at = 0; (at = text.find('&', at)) != text.npos; ++at) {
      const std::size_t end = text.find(';', at);
      if (end == text.npos || !entities.contains(text.substr(at + 1, end - at - 1)))
        return std::string("an & that begins no entity");
    }
    if (text.find("]]>") != text.npos) return std::string("]]> in text");
    for (const char c : text)
      if (c >= 0 && c < ' ' && c != '\n') return std::string("a control character");
    return std::string();
  };
  std::vector<std::string> open;
  std::size_t at = xml.find("?>") + 2, elements = 0;
  if (xml.rfind("<?xml ", 0) != 0) return "no declaration";
  while (at < xml.size()) {
    const std::size_t tag = xml.find('<', at), end = xml.find('>', at);
    const std::string text = xml.substr(at, tag - at);
    if (const std::string error = text_error(text); !error.empty()) return error + " in " + text;
    if (tag == xml.npos) break;
    if (end == xml.npos || xml.find('<', tag + 1) < end) return "a tag without an end";
    std::string inside = xml.substr(tag + 1, end - tag - 1);
    at = end + 1;
    if (inside[0] == '/') {
      if (open.empty() || open.back() != inside.substr(1)) return "closed, not open: " + inside;
      open.pop_back();
      continue;
    }
    if (open.empty() && elements > 0) return "two roots";
    ++elements;
    if (std::string error = text_error(inside); !error.empty()) return error;
    std::size_t quotes = 0;
    for (const char c : inside) quotes += c == '"' ? 1 : 0;
    if (quotes % 2 != 0) return "an odd quotation mark in " + inside;
    if (inside.back() != '/') open.push_back(inside.substr(0, inside.find_first_of(" \n")));
  }
  return open.empty() ? "" : "left open: " + open.back();
}

TEST_CASE("malformed() finds SVG that is not well-formed", "[examples][plot]") {
  const std::string head = "<?xml version=\"1.0\"?>\n";
  CHECK(malformed(head + "<a b=\"c\"><d/>e &lt; f</a>\n").empty());
  for (const char* bad : {"<a>", "<a></b>", "<a>&</a>", "<a>& b;</a>", "<a b=\"c></a>", "<a/><b/>",
                          "<a>]]></a>", "<a>\x01</a>", "<a <b></a>"})
    CHECK_FALSE(malformed(head + bad).empty());
}

TEST_CASE("SVG and PNG of a picture show the same drawing", "[examples][plot]") {
  const Picture picture = of_all_kinds("All kinds");
  const Pixels pixels(picture.png);
  CHECK(pixels.width == 60);
  CHECK(pixels.height == 50);
  CHECK_THAT(picture.svg, Containing(" width=\"60px\" height=\"50px\" viewBox=\"0 0 60 50\""));
  CHECK(malformed(picture.svg).empty());
  CHECK(pixels.at(0, 0) == white_color);
  CHECK(pixels.at(1, 1) == red);
  CHECK(pixels.at(9, 9) == red);
  CHECK(pixels.at(10, 9) == white_color);
  CHECK(pixels.at(12, 1) != black);  // a corner
  CHECK(pixels.at(13, 1) == black);
  CHECK(pixels.at(31, 4) == black);
  CHECK(pixels.at(2, 28) == black);
  CHECK(pixels.at(9, 28) == white_color);  // between dashes
  CHECK(pixels.at(11, 35) == Color{210, 180, 7});
  for (const char* shape : {"<rect ", "<path ", "<image ", "rgb(78.431373%,3.921569%,7.843137%)"})
    CHECK_THAT(picture.svg, Containing(shape));
}

TEST_CASE("equal drawings have equal bytes", "[examples][plot]") {
  const Picture first = of_all_kinds("One");
  with_text("something between");
  const Picture second = of_all_kinds("One");
  CHECK(first.svg == second.svg);
  CHECK(first.png == second.png);
  CHECK(of_all_kinds("Two").svg != first.svg);
}

TEST_CASE("an SVG has its title and texts, with any characters", "[examples][plot]") {
  const Picture picture = with_text(hostile);
  CHECK(malformed(picture.svg).empty());
  const std::string safe =
      "a&lt;b&gt; &amp; \"c\" 'd' ]]&gt; &lt;/svg&gt; &lt;script&gt;alert(1)&lt;/script&gt; "
      "&amp;amp;";
  CHECK_THAT(picture.svg, Containing("<title>" + safe + "</title>\n<desc>" + safe + "\n</desc>\n"));
  // Text that looks like one of Cairo's ids is not changed.
  const Picture named = with_text("id=\"surface77\" \"#image9\" url(#clip3)");
  CHECK_THAT(named.svg, Containing("<title>id=\"surface77\" \"#image9\" url(#clip3)</title>"));

  const Picture odd = with_text("tab\tline\nend\x01 \x7F \xFF\xC3 \xEF\xBF\xBF");
  CHECK(malformed(odd.svg).empty());
  CHECK_THAT(odd.svg, Containing("<title>tab line end    \uFFFD\uFFFD \uFFFD</title>"));
  const Picture none = with_text("");
  CHECK(none.svg.find("<title>") == std::string::npos);
  CHECK(none.svg.find("<desc>") == std::string::npos);
  CHECK(Pixels(none.png).count(white_color) == 200 * 40);
}

TEST_CASE("letters of many languages are drawn, all different", "[examples][plot]") {
  std::set<std::string> seen;
  for (const char* letter : {"A", "a", "ä", "ß", "é", "Ж", "ж", "Ω", "λ", "<", "&", "—", "…", "0",
                             "O", "1", "l", "\uFFFD"}) {
    const Picture picture = with_text(letter);
    INFO(letter);
    CHECK(Pixels(picture.png).count(white_color) < 200 * 40);
    CHECK(seen.insert(picture.png).second);
  }
  // A title is larger, and as wide as text_width().
  const Pixels title(with_text("Width", Font::title).png);
  int last = 0;
  for (int x = 0; x < title.width; ++x)
    for (int y = 0; y < title.height; ++y)
      if (!(title.at(x, y) == white_color)) last = x;
  CHECK(text_width("Width", Font::title) > text_width("Width"));
  CHECK(last <= 4 + text_width("Width", Font::title));
  CHECK(last > text_width("Width"));
}

TEST_CASE("text that is too long is cut between letters", "[examples][plot]") {
  const std::string text = "Größenordnung";
  const int whole = text_width(text);
  CHECK(fit_text(text, whole) == text);
  for (int width = 0; width < whole; ++width) {
    const std::string cut = fit_text(text, width);
    INFO(width << " " << cut);
    REQUIRE(text_width(cut) <= width);
    if (cut.empty()) continue;
    REQUIRE(cut.ends_with("…"));
    REQUIRE(shown_text(cut) == cut);  // valid UTF-8
    const std::string kept = cut.substr(0, cut.size() - std::string("…").size());
    REQUIRE(text.starts_with(kept));
  }
  CHECK(fit_text(text, whole - 1).starts_with("Größenord"));
  CHECK(fit_text(text, 0).empty());
  CHECK(fit_text("", 0).empty());
}

TEST_CASE("text is aligned left, centered or right", "[examples][plot]") {
  const auto columns = [](Align align) {
    const Pixels pixels(draw(200, 40, "", [&](Canvas& c) {
                          c.text(100, 28, "Middle", black, Font::regular, align);
                        }).png);
    int first = pixels.width, last = 0;
    for (int x = 0; x < pixels.width; ++x)
      for (int y = 0; y < pixels.height; ++y)
        if (!(pixels.at(x, y) == white_color)) first = std::min(first, x), last = x;
    return std::pair(first, last);
  };
  const int width = text_width("Middle");
  CHECK(columns(Align::left).first >= 100);
  CHECK(columns(Align::right).second < 100);
  CHECK(columns(Align::left).first - columns(Align::right).first == width);
  const int shift = columns(Align::left).first - columns(Align::middle).first;
  CHECK((shift == width / 2 || shift == (width + 1) / 2));
}

TEST_CASE("lines are clipped to their rectangle, however far they go", "[examples][plot]") {
  const auto line = [](const std::vector<Point>& points) {
    return Pixels(draw(40, 40, "", [&](Canvas& canvas) {
                    canvas.line(points, black, 4, {10, 10, 20, 20});
                  }).png);
  };
  for (const std::vector<Point>& points : {std::vector<Point>{{-1e300, 20}, {1e300, 20}},
                                           {{20, -1e30}, {20, 1e30}},
                                           {{0, 20}, {20, 20}, {40, 20}},
                                           {{-1e9, 20}, {20, 20}, {1e9, 20}}}) {
    const Pixels pixels = line(points);
    CHECK(pixels.count(black) == 20 * 4);
    CHECK(pixels.count(white_color) == 40 * 40 - 20 * 4);
  }
  // A line that turns far outside returns at the correct position: two sides of a wedge.
  const Pixels wedge = line({{10, 20}, {1e6, 20}, {1e6, 1e6}, {12, 28}});
  CHECK(wedge.at(20, 20) == black);
  CHECK(wedge.at(20, 32) == white_color);
  CHECK_FALSE(wedge.at(15, 29) == white_color);
  CHECK(line({{500, 500}, {600, 700}}).count(white_color) == 40 * 40);
  CHECK(line({{500, 500}}).count(white_color) == 40 * 40);
  CHECK(line({}).count(white_color) == 40 * 40);
  CHECK(line({{20, 20}}).count(black) > 80);  // a dot 12 pixels wide
}

TEST_CASE("a picture is written to two files", "[examples][plot]") {
  const TempDir folder;
  const Picture picture = of_all_kinds("Files");
  write_file(folder.file("p.png"), "old");
  write_picture(folder.file("p"), picture);
  CHECK(entries(folder.str()) == 2);
  CHECK(read_file(folder.file("p.svg")) == picture.svg);
  CHECK(read_file(folder.file("p.png")) == picture.png);
}

TEST_CASE("a picture that cannot be written is an error, and old files remain",
          "[examples][plot]") {
  const TempDir folder;
  const Picture picture = of_all_kinds("");
  const std::string path = folder.file("p");
  write_file(path + ".png", "old");
  std::filesystem::create_directory(path + ".svg");
  CHECK(error_of<UsageError>([&] { write_picture(path, picture); }) ==
        "cannot write '" + path + ".svg': Is a directory");
  CHECK(read_file(path + ".png") == "old");
  const std::string none = folder.file("no/x");
  CHECK(error_of<UsageError>([&] { write_picture(none, picture); }) ==
        "[save] " + none + ".svg: cannot create " + none + ".svg.tmp: No such file or directory");
  std::filesystem::create_symlink("/dev/full", folder.file("full.svg"));
  CHECK(error_of<std::runtime_error>([&] { write_picture(folder.file("full"), picture); }) ==
        "cannot write '" + folder.file("full.svg") + "': No space left on device");
  CHECK(entries(folder.str()) == 3);

  const auto nothing = [](Canvas&) {};
  CHECK(error_of<std::invalid_argument>([&] { draw(0, 5, "", nothing); }) ==
        "a picture of 0 x 5 pixels; sides must be 1 to 32767");
  CHECK_THROWS_AS(draw(5, 32768, "", nothing), std::invalid_argument);
  CHECK(draw(1, 32767, "", nothing).height == 32767);
}

}  // namespace
