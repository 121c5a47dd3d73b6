#include <algorithm>
#include <climits>
#include <cmath>
#include <cstddef>
#include <cstdio>
#include <map>
#include <set>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

#include "core/error.h"
#include "examples/plot/chart.h"
#include "examples/plot/svg.h"
#include "tests/examples/temp_dir.h"
#include "tests/support/catch.h"

namespace {

using namespace stretto::examples;           // NOLINT
using namespace stretto::examples::testing;  // NOLINT
using Texts = std::vector<std::string>;
using Numbers = std::vector<double>;

struct Element {
  std::string name, text;
  std::map<std::string, std::string> attributes;

  /// Returns the numbers in an attribute such as "1,2 3,4" or "M1 2h3".
  Numbers numbers(const std::string& attribute) const {
    std::string value = attributes.at(attribute);
    std::replace_if(
        value.begin(), value.end(),
        [](char c) { return std::string(",Mh").find(c) != std::string::npos; }, ' ');
    std::istringstream in(value);
    Numbers all;
    for (double x = 0; in >> x;) all.push_back(x);
    return all;
  }
  double operator[](const std::string& attribute) const { return numbers(attribute).at(0); }
};

void require(bool good, const std::string& problem) {
  if (!good) throw std::runtime_error(problem);
}

std::string unescaped(const std::string& text) {
  const std::map<std::string, std::string> entities{{"&lt;", "<"}, {"&gt;", ">"}, {"&amp;", "&"}};
  std::string all;
  for (std::size_t at = 0; at < text.size(); ++at) {
    require(text[at] != '>' && (text[at] < 0 || text[at] >= ' ' || text[at] == '\n'), "not text");
    const std::size_t end = text[at] == '&' ? text.find(';', at) : at;
    const std::string part = text.substr(at, end - at + 1);
    require(text[at] != '&' || entities.contains(part), "an unknown entity");
    all += text[at] == '&' ? entities.at(part) : part;
    at = end;
  }
  return all;
}

/// Returns the elements of an SVG in the order in which they begin; throws std::runtime_error if it
/// is not well-formed.
std::vector<Element> parsed(const std::string& svg) {
  std::vector<Element> all;
  std::vector<std::size_t> open;
  for (std::size_t at = 0; at < svg.size();) {
    const std::size_t tag = svg.find('<', at), end = svg.find('>', tag);
    const std::string text = unescaped(svg.substr(at, tag - at));
    if (!open.empty()) all[open.back()].text += text;
    if (tag == svg.npos) break;
    require(end != svg.npos, "a tag without an end");
    std::string inside = svg.substr(tag + 1, end - tag - 1);
    at = end + 1;
    if (inside[0] == '/') {
      require(!open.empty() && all[open.back()].name == inside.substr(1), "closed, not open");
      open.pop_back();
      continue;
    }
    require(all.empty() || !open.empty(), "two roots");
    if (inside.back() != '/')
      open.push_back(all.size());
    else
      inside.pop_back();
    Element element{inside.substr(0, inside.find(' ')), "", {}};
    for (std::size_t p = element.name.size(); p < inside.size();) {
      const std::size_t equal = inside.find("=\"", p), quote = inside.find('"', equal + 2);
      require(inside[p] == ' ' && equal != inside.npos && quote != inside.npos, "no attribute");
      element.attributes[inside.substr(p + 1, equal - p - 1)] =
          unescaped(inside.substr(equal + 2, quote - equal - 2));
      p = quote + 1;
    }
    all.push_back(element);
  }
  require(open.empty(), "left open");
  return all;
}

/// Returns the elements with this name that have the value in any attribute.
std::vector<Element> elements(const std::string& svg, const std::string& name,
                              const std::string& value = "") {
  std::vector<Element> all = parsed(svg);
  std::erase_if(all, [&](const Element& e) {
    return e.name != name ||
           (!value.empty() && std::none_of(e.attributes.begin(), e.attributes.end(),
                                           [&](const auto& pair) { return pair.second == value; }));
  });
  return all;
}

Element text_of(const std::string& svg, const std::string& text) {
  for (const Element& e : elements(svg, "text"))
    if (e.text == text) return e;
  throw std::runtime_error("no text '" + text + "'");
}

TEST_CASE("SVG that is not well-formed is found", "[examples][plot]") {
  CHECK(parsed("<a b=\"c\" d=\"\"><d/>e &lt; f</a>\n")[0].text == "e < f");
  for (const char* bad : {"<a>", "<a></b>", "<a>&</a>", "<a>& b;</a>", "<a b=\"c></a>", "<a/><b/>",
                          "<a>\x01</a>", "<a <b></a>", "<a b></a>", "<a>></a>"})
    CHECK_THROWS_AS(parsed(bad), std::runtime_error);
}

TEST_CASE("texts of pictures are escaped", "[examples][plot]") {
  const std::string hostile = "a<b> & \"c\" 'd' ]]> </svg> <script>x</script> &amp;";
  const std::string chart =
      line_chart({hostile, hostile, hostile, {{hostile, 1}}, {}}, {{hostile, {1}, {2}}});
  CHECK(elements(chart, "title").at(0).text == hostile);
  const auto texts = elements(chart, "text");  // title, labels of axes, legend; reference: cut
  CHECK(std::count_if(texts.begin(), texts.end(),
                      [&](const Element& e) { return e.text == hostile; }) == 4);
  text_of(heat_maps("", {{"<&>", 1, 1, {0}}}), "<&>");
  text_of(piano_roll({}, {{"<&>", "red", {}}}), "<&>");
  CHECK(escaped("tab\tline\nend\x01 \x7F \xFF\xC3 \xEF\xBF\xBF ä") ==
        "tab line end    \uFFFD\uFFFD \uFFFD ä");
  CHECK(elements(chart, "svg", "http://www.w3.org/2000/svg").size() == 1);
}

TEST_CASE("texts that are too long are cut between characters", "[examples][plot]") {
  CHECK(fit_text("Größe", text_width("Größe")) == "Größe");
  CHECK(fit_text("Größe", text_width("Größe") - 1) == "Grö…");
  CHECK(fit_text("Größe", text_width("Gr…")) == "Gr…");
  CHECK(fit_text("Größe", text_width("Gr…") - 1) == "G…");
  CHECK(fit_text("Größe", 8).empty());
  CHECK(fit_text("", 0).empty());
}

TEST_CASE("curves and reference lines go through the positions of the ticks", "[examples][plot]") {
  const std::string chart =
      line_chart({"t", "step", "loss", {{"bigram", 6}, {"none", NAN}}, {}},
                 {{"a", {0, 40, 100}, {2, 4, 8}},
                  {"b", {0, 10, 20, 30, 40, 50}, {2, 2, NAN, INFINITY, 2, NAN}}});
  const Numbers curve = elements(chart, "polyline", "#0072b2").at(1).numbers("points");
  REQUIRE(curve.size() == 6);
  for (const Element& tick : elements(chart, "text", "end"))  // 5 pixels below a whole pixel
    for (const std::size_t i : {1, 3, 5})
      if (std::stod(tick.text) == std::vector{2, 4, 8}[i / 2])
        CHECK(std::abs(curve[i] - (tick["y"] - 5)) <= 0.5);
  CHECK(std::abs(curve[2] - text_of(chart, "40")["x"]) <= 0.5);
  CHECK(std::abs(curve[4] - text_of(chart, "100")["x"]) <= 0.5);
  const auto dashed = elements(chart, "polyline", "7 5");
  REQUIRE(dashed.size() == 1);  // no line at NaN
  const double y = dashed[0].numbers("points").at(1);
  CHECK(dashed[0].numbers("points") == Numbers{curve[0], y, curve[4], y});
  CHECK(y == Approx((curve[3] + curve[5]) / 2).epsilon(1e-4));
  CHECK(text_of(chart, "bigram")["y"] == Approx(y + 5));
  // Between gaps there is a dot.
  CHECK(elements(chart, "polyline", "#d55e00").at(1).numbers("points").size() == 4);
  CHECK(elements(chart, "circle", "#d55e00").at(0)["cy"] == Approx(curve[1]));
  for (const char* text : {"t", "step", "loss", "a", "b"}) text_of(chart, text);
}

TEST_CASE("ticks are at even distances inside their axis", "[examples][plot]") {
  const auto ticks_of = [](double low, double high) {
    const std::string chart = line_chart({}, {{"", {0.5, 1}, {low, high}}});
    Numbers labels;
    for (const Element& e : elements(chart, "text", "end")) {
      labels.push_back(std::stod(e.text));
      CHECK((e["y"] >= 84 && e["y"] <= 661));
    }
    return labels;
  };
  CHECK(ticks_of(0, 10) == Numbers{0, 2, 4, 6, 8, 10});
  CHECK(ticks_of(-3, 99) == Numbers{0, 20, 40, 60, 80, 100});
  CHECK(ticks_of(5, 5) == Numbers{4.8, 4.9, 5, 5.1, 5.2});
  for (const double scale : {1e-290, 1e-9, 1e-3, 1.0, 250.0, 1e6, 1e10, 1e290})
    for (const double low : {-1.0, -0.37, 0.0, 0.42, 0.9999999}) {
      INFO(low << " " << scale);
      const Numbers ticks = ticks_of(low * scale, scale);
      REQUIRE((ticks.size() >= 3 && ticks.size() <= 9));
      for (std::size_t i = 2; i < ticks.size(); ++i)
        CHECK((ticks[i] - ticks[i - 1]) / (ticks[1] - ticks[0]) == Approx(1).epsilon(1e-3));
    }
  // Between steps, which are whole numbers, there are no ticks.
  CHECK(elements(line_chart({}, {{"", {1, 2}, {7, 7}}}), "text", "middle").size() == 3);
}

TEST_CASE("a line chart accepts unusual data", "[examples][plot]") {
  for (const Series& s : std::vector<Series>{{"", {}, {}},
                                             {"", {0, 1}, {NAN, INFINITY}},
                                             {"", {NAN}, {1}},
                                             {"", {0, 1}, {-1e308, 1e308}}})
    text_of(line_chart({}, {s}), "no data");
  for (const Series& s : std::vector<Series>{{"one", {3}, {0.5}},
                                             {"flat", {0, 1}, {2, 2}},
                                             {"huge", {0, 1}, {-1e300, 1e300}},
                                             {"tiny", {0, 1}, {1e-310, 3e-310}}}) {
    const std::string chart = line_chart({.y_max = 1}, {s});
    INFO(chart);
    for (const Element& e : parsed(chart))
      for (const auto& [name, value] : e.attributes)
        for (const double x : e.numbers(name)) CHECK(std::abs(x) <= 1e5);
    for (const char* bad : {"no data", "nan", "inf"}) CHECK(chart.find(bad) == chart.npos);
  }
  // Values above y_max are cut off by the inner <svg>.
  const std::string cut = line_chart({.y_max = 1}, {{"", {0, 1}, {0, 100}}});
  CHECK(elements(cut, "polyline").at(0).numbers("points").at(3) < -1000);
  CHECK(elements(cut, "svg").at(1).numbers("viewBox").at(1) == elements(cut, "svg").at(1)["y"]);
  CHECK(error_of<stretto::Error>([] {
          line_chart({}, {{"odd", {1, 2}, {1}}});
        }) == "[line_chart] series 'odd' has 2 x and 1 y; their numbers must be equal");
}

TEST_CASE("a legend has an entry per series, and colors repeat with dashes", "[examples][plot]") {
  std::vector<Series> series;
  for (int i = 0; i < 30; ++i)
    series.push_back({"series number " + std::to_string(i), {0, 1}, {1, double(i)}});
  const std::string chart = line_chart({}, series);
  std::set<std::pair<double, double>> places;
  for (const Series& s : series)
    places.emplace(text_of(chart, s.name)["x"], text_of(chart, s.name)["y"]);
  CHECK(places.size() == 30);
  CHECK(places.rbegin()->first < 1100);
  CHECK(elements(chart, "polyline", "7 5").size() ==
        2 * 14);  // 8 to 14 and 22 to 28, in the legend, too
}

/// Returns the colors of the cells of the map number `index`, "" for cells not drawn.
Texts cells(const std::string& svg, int index, std::size_t rows, std::size_t columns) {
  Texts colors(rows * columns);
  int map = -2;  // the outer <svg> is no map
  for (const Element& e : parsed(svg)) {
    map += e.name == "svg" ? 1 : 0;
    if (map != index || e.name != "path") continue;
    const Numbers runs = e.numbers("d");
    for (std::size_t i = 0; i < runs.size(); i += 3)
      for (std::size_t k = 0; k < std::size_t(runs[i + 2]); ++k)
        colors.at(std::size_t(runs[i + 1]) * columns + std::size_t(runs[i]) + k) +=
            e.attributes.at("stroke");
  }
  return colors;
}

TEST_CASE("heat maps color each cell by its value", "[examples][plot]") {
  const std::string svg = heat_maps("Attention", {{"head", 2, 3, {0, 1, 1, 0.5F, NAN, 0}}});
  const Texts bar = cells(svg, 1, 64, 1);  // from the top: the largest value first
  CHECK(cells(svg, 0, 2, 3) == Texts{bar[63], bar[0], bar[0], bar[31], "", bar[63]});
  double before = 1e9;
  for (const std::string& color : bar) {
    int r = 0, g = 0, b = 0;
    REQUIRE(std::sscanf(color.c_str(), "rgb(%d,%d,%d)", &r, &g, &b) == 3);
    const double luminance = 0.2126 * r + 0.7152 * g + 0.0722 * b;
    CHECK(luminance < before);
    before = luminance;
  }
  const Element map = elements(svg, "svg", "0 -0.5 3 2").at(0);
  CHECK(map["width"] == 240);
  CHECK(map["height"] == 160);
  CHECK(text_of(svg, "head")["y"] < map["y"]);
  CHECK(text_of(svg, "0.5")["y"] == Approx(map["y"] + 80 + 5));
  const std::string zeros = heat_maps("", {{"", 100, 100, std::vector<float>(10'000)}});
  CHECK(elements(zeros, "path").at(0).numbers("d").size() == 300);  // a run per row

  const auto error_for = [](const std::vector<HeatMap>& maps) {
    return error_of<stretto::Error>([&] { heat_maps("", maps); });
  };
  CHECK(error_for({}) == "[heat_maps] no maps; at least one is needed");
  CHECK(error_for({{"m", 2, 2, {1}}}) == "[heat_maps] map 'm' has 1 values for 2 x 2");
}

TEST_CASE("the scale of heat maps makes small weights visible", "[examples][plot]") {
  HeatMap causal{"head", 128, 128, std::vector<float>(128 * 128)};
  for (std::size_t i = 0; i < 128; ++i)
    for (std::size_t j = 0; j <= i; ++j) causal.values[i * 128 + j] = 1.0F / float(i + 1);
  CHECK(heat_scale({causal}).gamma == 1.0 / 5);  // the mean, 2 / 129, is between 0.4^5 and 0.4^4
  const std::string svg = heat_maps("", {causal});
  for (const char* text : {"5th root", "0", "0.00098", "0.031", "0.24", "1"}) text_of(svg, text);
  CHECK(heat_scale({{"m", 1, 2, {1, 0.5F}}}).gamma == 1);
  CHECK(heat_scale({{"m", 1, 2, {0, 0}}}).share(0) == 0);
  CHECK(heat_scale({{"m", 1, 2, {0.01F, NAN}}}).high == 0.01F);
  const HeatScale both = heat_scale({{"m", 1, 2, {1, -1e-6F}}});  // a template
  CHECK((both.gamma == 1 && both.low == -1e-6F));
  std::vector<float> tiny(1000, 1e-30F);
  tiny[0] = 1;
  CHECK(heat_scale({{"m", 1, 1000, tiny}}).gamma == 1.0 / 8);
}

TEST_CASE("large heat maps are coarsened to their maxima", "[examples][plot]") {
  HeatMap noise{"m", 1001, 1000, std::vector<float>(1'001'000)};
  for (std::size_t i = 0; i < noise.values.size(); ++i)
    noise.values[i] = float(i * 2654435761U % 1000);
  noise.values[1000 * 500 + 7] = 5000;
  std::vector<HeatMap> maps(8, noise);
  CHECK(heat_maps("", maps).size() < 2'000'000);
  CHECK(coarsen(maps, 8'000'000) == 2);
  CHECK(maps[7].rows == 501);
  CHECK(maps[7].values.at(250 * 500 + 3) == 5000);
  CHECK(coarsen(maps, 8'000'000) == 1);
  CHECK(coarsen(maps, 1) == 501);  // one value per map
}

TEST_CASE("a piano roll shows the notes where they sound", "[examples][plot]") {
  const std::string svg =
      piano_roll({"Two bars", 4, 17}, {{"one", "red", {{0, 16, 60}, {16, 17, 72, 2}}}});
  const auto notes = elements(svg, "rect", "red");  // the first is in the legend
  REQUIRE(notes.size() == 3);
  const double step = 12, bar_2 = text_of(svg, "2")["x"] - 3;  // numbers are right of their line
  CHECK(notes[1]["width"] == 16 * step - 1);
  CHECK(notes[1]["x"] + 16 * step == notes[2]["x"]);
  CHECK(notes[2]["x"] == bar_2 + 1);
  CHECK(notes[1]["y"] - notes[2]["y"] == 12 * 12 - 2);  // an octave
  CHECK(notes[2]["height"] == notes[1]["height"] - 4);
  CHECK(text_of(svg, "C4")["y"] == notes[1]["y"] + 10);
  CHECK(elements(svg, "svg").at(0)["width"] > bar_2 + 16 * step);  // whole bars
  for (const char* text : {"Two bars", "one", "bar", "C5"}) text_of(svg, text);
  CHECK(parsed(piano_roll({}, {})).size() > 10);
  const std::vector<RollNote> endless{
      {0, 24'000, 60}, {24'000, 24'001, 127}, {1 << 30, INT_MAX, 1}};
  CHECK(elements(piano_roll({"", 12}, {{"", "red", endless}}), "rect", "red").size() == 2);
  for (const RollNote& bad :
       std::vector<RollNote>{{0, 1, 128}, {0, 1, -1}, {3, 3, 60}, {-1, 3, 60}})
    CHECK_THAT(error_of<stretto::Error>([&] {
                 piano_roll({}, {{"", "red", {bad}}});
               }),
               Containing("; pitches are 0 to 127, and a note ends after it begins"));
}

TEST_CASE("equal data make equal pictures", "[examples][plot]") {
  const auto draw = [](float x) {
    return line_chart({"t"}, {{"a", {0, 1}, {double(x), 2}}}) +
           heat_maps("t", {{"m", 1, 2, {x, 2}}}) +
           piano_roll({"t"}, {{"v", "red", {{0, int(x * 10), 60}}}});
  };
  CHECK(draw(0.3F) == draw(0.3F));
  CHECK(draw(0.3F) != draw(0.7F));
}

}  // namespace
