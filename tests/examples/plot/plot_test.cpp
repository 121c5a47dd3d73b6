#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <limits>
#include <stdexcept>
#include <string>
#include <vector>

#include "examples/chorales/chorale_song.h"
#include "examples/plot/canvas.h"
#include "examples/plot/chart.h"
#include "examples/plot/ticks.h"
#include "tests/examples/plot/pixels.h"
#include "tests/examples/temp_dir.h"
#include "tests/support/catch.h"

namespace {

using namespace stretto::examples;           // NOLINT
using namespace stretto::examples::testing;  // NOLINT

constexpr Color kSopranoColor{213, 94, 0};
constexpr Color kFirstSeries{0, 114, 178};
constexpr Color kDashes{120, 124, 132};
const double kNan = std::numeric_limits<double>::quiet_NaN();

int count(const Picture& picture, Color color) { return Pixels(picture.png).count(color); }

/// Returns the smallest and largest x with a pixel of `color`.
std::array<int, 2> columns_of(const Pixels& pixels, Color color) {
  std::array<int, 2> columns = {pixels.width, -1};
  for (int y = 0; y < pixels.height; ++y) {
    for (int x = 0; x < pixels.width; ++x) {
      if (!(pixels.at(x, y) == color)) continue;
      columns = {std::min(columns[0], x), std::max(columns[1], x)};
    }
  }
  return columns;
}

double luminance(Color c) { return 0.2126 * c.r + 0.7152 * c.g + 0.0722 * c.b; }

TEST_CASE("ticks are round numbers", "[examples][plot]") {
  CHECK(nice_ticks(0, 10, 6).values == std::vector<double>{0, 2, 4, 6, 8, 10});
  CHECK(nice_ticks(0.9, 2.65, 5).step == 0.5);
  CHECK(nice_ticks(-3, 99, 6).values == std::vector<double>{0, 20, 40, 60, 80});
  CHECK(tick_label(0.25, 0.05) == "0.25");
  CHECK(tick_label(2, 0.5) == "2.0");
  CHECK(tick_label(3, 1) == "3");
  CHECK(tick_label(2000, 1000) == "2k");
  CHECK(tick_label(150, 50) == "150");
  CHECK(tick_label(1500000, 500000) == "1.5M");
  CHECK(tick_label(0, 1000) == "0");
  CHECK(tick_label(3e-9, 1e-9) == "3e-9");
  CHECK(tick_label(-1.5e12, 5e11) == "-1.5e12");
  CHECK(tick_label(0, 1e-9) == "0");
  CHECK(tick_label(1 + 2e-8, 1e-8) == "1.00000002");
  CHECK(tick_label(12345678, 2) == "12345678");
  for (const double span : {1e-12, 0.3, 7.0, 12345.0, 1e15}) {
    const Ticks ticks = nice_ticks(0.1 * span, 1.1 * span, 8);
    CHECK(ticks.values.size() >= 2);
    CHECK(ticks.values.size() <= 8);
  }
}

TEST_CASE("ticks are within their limits, evenly spaced, and have different labels",
          "[examples][plot]") {
  for (const double scale : {1e-300, 1e-9, 1e-3, 1.0, 250.0, 1e6, 1e10, 1e300})
    for (const double low : {-1.0, -0.37, 0.0, 0.42, 0.9999999})
      for (const int most : {2, 5, 12}) {
        const double high = 1.0;
        const Ticks ticks = nice_ticks(low * scale, high * scale, most);
        INFO(low << " " << scale << " " << most);
        REQUIRE(int(ticks.values.size()) <= most);
        REQUIRE_FALSE(ticks.values.empty());
        const double mantissa =
            ticks.step / std::pow(10, std::floor(std::log10(ticks.step) + 1e-9));
        CHECK((mantissa == Approx(1) || mantissa == Approx(2) || mantissa == Approx(5)));
        std::vector<std::string> labels;
        for (std::size_t i = 0; i < ticks.values.size(); ++i) {
          CHECK(ticks.values[i] >= (low - 1e-8) * scale);
          CHECK(ticks.values[i] <= (high + 1e-8) * scale);
          if (i > 0)
            CHECK((ticks.values[i] - ticks.values[i - 1]) / ticks.step == Approx(1).epsilon(1e-6));
          labels.push_back(tick_label(ticks.values[i], ticks.step));
          CHECK(std::count(labels.begin(), labels.end(), labels.back()) == 1);
        }
      }
}

TEST_CASE("a line chart draws its series, gaps and references", "[examples][plot]") {
  ChartOptions options;
  options.title = "Loss <of> all & more";
  options.x_label = "step";
  options.y_label = "nats per token";
  options.reference_lines = {{"bigram", 1.0}};
  Series series{"", {}, {}};
  for (int i = 0; i <= 100; ++i) {
    series.x.push_back(i);
    series.y.push_back(i > 40 && i < 60 ? kNan : 2 - 0.01 * i);
  }
  const Picture chart = line_chart(options, {series});
  const Pixels pixels(chart.png);
  CHECK(pixels.width == 1200);
  CHECK(pixels.height == 720);
  CHECK_THAT(chart.svg, Containing("<title>Loss &lt;of&gt; all &amp; more</title>"));
  for (const char* text : {"\nnats per token\n", "\nstep\n", "\nbigram\n", "\n1.0\n", "\n20\n"})
    CHECK_THAT(chart.svg, Containing(text));
  const auto columns = columns_of(pixels, kFirstSeries);
  const int width = columns[1] - columns[0];
  CHECK(width > 800);
  for (int x = columns[0] + width * 43 / 100; x < columns[0] + width * 57 / 100; ++x) {
    for (int y = 0; y < pixels.height; ++y) REQUIRE_FALSE(pixels.at(x, y) == kFirstSeries);
  }
  CHECK(pixels.count(kDashes) > width / 2);
  options.reference_lines.clear();
  CHECK(count(line_chart(options, {series}), kDashes) == 0);

  // A legend adds a swatch and the name of each series.
  series.name = "train";
  const Picture named = line_chart(options, {series});
  CHECK_THAT(named.svg, Containing("\ntrain\n"));
  series.name = "";
  CHECK(count(named, kFirstSeries) != count(line_chart(options, {series}), kFirstSeries));
}

TEST_CASE("series of the same color have different dashes", "[examples][plot]") {
  const auto drawn_at = [](std::size_t index) {
    std::vector<Series> series(index + 1);
    series.back() = {"", {0, 1}, {1, 1}};
    return count(line_chart({}, series), kFirstSeries);
  };
  CHECK(drawn_at(0) > 1000);
  CHECK(drawn_at(7) > 400);
  CHECK(drawn_at(7) < drawn_at(0) * 2 / 3);
}

TEST_CASE("a long legend makes the chart higher", "[examples][plot]") {
  std::vector<Series> series;
  for (int i = 0; i < 200; ++i) series.push_back({"series number " + std::to_string(i), {0}, {1}});
  CHECK(line_chart({}, series).height > 720);
  CHECK(line_chart({.width = 320, .height = 240}, {series[0]}).height == 240);
}

TEST_CASE("a line chart accepts unusual data and rejects invalid data", "[examples][plot]") {
  const ChartOptions plain;
  CHECK(line_chart(plain, {}).width == 1200);
  CHECK(line_chart(plain, {{"all gaps", {0, 1}, {kNan, kNan}}}).width == 1200);
  CHECK(count(line_chart(plain, {{"", {3}, {0.5}}}), kFirstSeries) > 9);  // a dot
  CHECK(line_chart(plain, {{"flat", {0, 1}, {2, 2}}}).width == 1200);
  CHECK(count(line_chart(plain, {{"huge", {0, 1}, {-1e300, 1e300}}}), kFirstSeries) > 1000);
  CHECK(line_chart(plain, {{"too large", {0, 1}, {-1e308, 1e308}}}).svg ==
        line_chart(plain, {{"too large", {0, 1}, {kNan, kNan}}}).svg);
  CHECK(count(line_chart(plain, {{"", {0, 1}, {1e-310, 3e-310}}}), kFirstSeries) > 1000);
  CHECK_THAT(line_chart(plain, {}).svg, Containing("\nno data\n"));
  const std::string long_title(5000, 'W');
  CHECK_THAT(line_chart({.title = long_title}, {}).svg, Containing("WWW…\n"));
  ChartOptions capped;
  capped.y_max = -5;
  CHECK(line_chart(capped, {{"above", {0, 1}, {1, 2}}}).width == 1200);

  const auto refusal = [](const ChartOptions& options, const std::vector<Series>& series) {
    return error_of<std::invalid_argument>([&] { line_chart(options, series); });
  };
  CHECK(refusal(plain, {{"odd", {1, 2}, {1}}}) == "line_chart: series 'odd' has 2 x and 1 y");
  ChartOptions bad;
  bad.width = 100;
  CHECK(refusal(bad, {}) == "line_chart: the picture is smaller than 320 x 240 pixels");
  bad = {};
  bad.reference_lines = {{"nan", kNan}};
  CHECK(refusal(bad, {}) == "line_chart: reference line 'nan' is not finite");
  bad = {};
  bad.y_min = bad.y_max = 1;
  CHECK(refusal(bad, {}) == "line_chart: y_min is not below y_max");
}

TEST_CASE("the heat scale is ordered by lightness", "[examples][plot]") {
  double before = -1;
  for (int i = 0; i <= 64; ++i) {
    const double now = luminance(heat_color(i / 64.0));
    CHECK(now > before);
    before = now;
  }
  CHECK(luminance(heat_color(0)) < 30);
  CHECK(luminance(heat_color(1)) > 220);
  CHECK(heat_color(-3) == heat_color(0));
  CHECK(heat_color(9) == heat_color(1));
}

TEST_CASE("heat maps color each cell by its value", "[examples][plot]") {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const Picture picture = heat_maps("Attention", {{"head", 2, 2, {0, 1, 0.5F, nan}}});
  const Pixels image(picture.png);
  CHECK_THAT(picture.svg, Containing("<desc>Attention\nhead\n0.0\n0.2\n"));
  // Cells of 120 pixels, below title and caption, from the left margin.
  const int left = 28;
  const int top = 84;
  CHECK(image.at(left, top) == heat_color(0));
  CHECK(image.at(left + 119, top + 119) == heat_color(0));
  CHECK(image.at(left + 120, top) == heat_color(1));
  CHECK(image.at(left, top + 239) == heat_color(0.5));
  CHECK(image.at(left + 180, top + 180) == Color{200, 200, 200});
  const Pixels lifted(heat_maps("Attention", {{"head", 2, 2, {0, 1, 0.25F, 0}}}, 0.5).png);
  CHECK(lifted.at(left + 60, top + 180) == heat_color(0.5));
  CHECK(heat_maps("", {{"a", 1, 1, {0}}, {"b", 3, 700, std::vector<float>(2100, -2.0F)}}).width >
        600);

  const auto refusal = [](const std::vector<HeatMap>& maps, double gamma) {
    return error_of<std::invalid_argument>([&] { heat_maps("", maps, gamma); });
  };
  CHECK(refusal({}, 1) == "heat_maps: no maps");
  CHECK(refusal({{"m", 2, 2, {1}}}, 1) == "heat_maps: map 'm' has 1 values for 2 x 2");
  CHECK(refusal({{"m", 1, 1, {1}}}, 0) == "heat_maps: gamma must be positive and finite");
}

TEST_CASE("heat maps of uniform causal attention are neither black nor constant",
          "[examples][plot]") {
  // Uniform weights of causal attention: the first query attends only to itself.
  const int n = 128;
  HeatMap map{"head", n, n, std::vector<float>(std::size_t(n * n))};
  for (int i = 0; i < n; ++i)
    for (int j = 0; j <= i; ++j) map.values[std::size_t(i * n + j)] = 1.0F / float(i + 1);
  const double gamma = heat_gamma({map});
  CHECK(gamma == 1.0 / 5);  // the mean, 2 / 129, is between 0.4^5 and 0.4^4
  const Picture picture = heat_maps("Attention", {map}, gamma);
  CHECK_THAT(picture.svg, Containing("\n5th root\n"));
  CHECK_THAT(picture.svg, Containing("\n0\n0.00098\n0.031\n0.24\n1\n"));
  const Pixels image(picture.png);
  const auto cell = [&](int i, int j) { return image.at(28 + 2 * j, 84 + 2 * i); };
  CHECK(luminance(cell(127, 64)) > 2.5 * luminance(heat_color(0)));
  CHECK(luminance(cell(0, 0)) > 3 * luminance(cell(127, 64)));
  CHECK(cell(0, 1) == heat_color(0));

  CHECK(heat_gamma({{"m", 1, 2, {1, 0.5F}}}) == 1);
  CHECK(heat_gamma({{"m", 1, 2, {1, -1e-6F}}}) == 1);  // values of both signs: a template
  CHECK(heat_gamma({{"m", 1, 2, {0, 0}}}) == 1);
  CHECK(heat_gamma({{"m", 1, 2, {0.01F, float(kNan)}}}) == 1);
  std::vector<float> tiny(1000, 1e-30F);
  tiny[0] = 1;
  CHECK(heat_gamma({{"m", 1, 1000, tiny}}) == 1.0 / 8);
  CHECK(root_name(0.5) == "square root");
  CHECK(root_name(1.0 / 3) == "cube root");
  CHECK(root_name(0.4) == "power 0.4");
}

TEST_CASE("an axis of steps has only whole steps", "[examples][plot]") {
  const auto texts = [](const std::vector<double>& x) {
    return line_chart({.x_label = "step"}, {{"", x, std::vector<double>(x.size(), 7)}}).svg;
  };
  for (const auto& x : {std::vector<double>{1}, {1, 2}, {1000}}) {
    INFO(x[0]);
    const std::string svg = texts(x);
    const size_t begin = svg.find("<desc>");
    const std::string shown = svg.substr(begin, svg.find("</desc>") - begin);
    CHECK_THAT(shown, Containing("\n" + std::to_string(int(x[0])) + "\n"));
    CHECK(shown.find(std::to_string(int(x[0])) + ".") == shown.npos);
  }
  CHECK_THAT(texts({0.5, 1.5}), Containing("\n1.0\n"));
  CHECK(nice_ticks(0, 2, 20, 1).step == 1);
}

TEST_CASE("a piano roll shows the notes where they sound", "[examples][plot]") {
  Chorale chorale;
  for (int i = 0; i < 32; ++i) chorale.steps.push_back({i < 16 ? 72 : -1, 64, 60, 48});
  const Picture both = piano_roll(chorale, "Two bars");
  for (auto& step : chorale.steps) step[0] = 72;
  const Picture all = piano_roll(chorale, "Two bars");
  for (auto& step : chorale.steps) step[0] = -1;
  const Picture none = piano_roll(chorale, "Two bars");
  for (const char* text : {"<title>Two bars</title>", "\nSoprano\n", "\nbar\n", "\nC4\n"})
    CHECK_THAT(both.svg, Containing(text));
  const int legend = count(none, kSopranoColor);
  const int half = count(both, kSopranoColor) - legend;
  const int full = count(all, kSopranoColor) - legend;
  CHECK(legend > 0);
  CHECK(half > 1000);
  CHECK(std::abs(full - 2 * half) < full / 10);

  CHECK(piano_roll({}, "").width >= 300);
  CHECK_THROWS_AS(piano_roll({{{128, 0, 0, 0}}}, ""), std::invalid_argument);
  CHECK_THROWS_AS(piano_roll({std::vector<std::array<int, 4>>(8001)}, ""), std::invalid_argument);
}

TEST_CASE("a piano roll draws any notes and rejects invalid ones", "[examples][plot]") {
  const Color color{1, 2, 200};
  const auto drawn = [&](int per_beat, const std::vector<RollNote>& notes, int steps = 0) {
    return piano_roll({.title = "", .steps_per_beat = per_beat, .steps = steps},
                      {{"one", color, notes}});
  };
  const int legend = count(drawn(12, {}), color);
  CHECK(count(drawn(12, {{0, 48, 60}}), color) - legend > 1000);
  CHECK(count(drawn(12, {{0, 1, 60}, {767, 768, 61}}), color) > legend);  // one pixel per step
  CHECK(drawn(12, {{0, 48, 60}}, 49).width == drawn(12, {{0, 96, 60}}).width);
  CHECK(drawn(1, {{0, 2000, 60}}).width > drawn(1, {{0, 1000, 60}}).width);

  const auto error_for = [&](int per_beat, const RollNote& note) {
    return error_of<std::invalid_argument>([&] { drawn(per_beat, {note}); });
  };
  CHECK(error_for(12, {0, 1, 128}) == "piano_roll: pitch 128 is not in 0 .. 127");
  CHECK(error_for(12, {3, 3, 60}) == "piano_roll: a note from step 3 to 3");
  CHECK(error_for(12, {-1, 3, 60}) == "piano_roll: a note from step -1 to 3");
  CHECK(error_for(2, {0, 4001, 60}) ==
        "piano_roll: 4001 steps are too many to draw (at most 4000)");
  CHECK(error_for(17, {0, 1, 60}) == "piano_roll: steps_per_beat is 17; expected 1 to 16");
}

}  // namespace
