#include <png.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <limits>
#include <stdexcept>
#include <string>
#include <vector>

#include "examples/chorales/chorale_roll.h"
#include "examples/common/error.h"
#include "examples/plot/chart.h"
#include "examples/plot/image.h"
#include "examples/plot/ticks.h"
#include "tests/examples/temp_dir.h"
#include "tests/support/catch.h"

namespace {

using namespace stretto::examples;           // NOLINT
using namespace stretto::examples::testing;  // NOLINT

constexpr Color kRed{200, 10, 20};
constexpr Color kSopranoColor{213, 94, 0};
constexpr Color kFirstSeries{0, 114, 178};
constexpr Color kDashes{120, 124, 132};
const double kNan = std::numeric_limits<double>::quiet_NaN();

int count(const Image& image, Color color) {
  int found = 0;
  for (int y = 0; y < image.height; ++y) {
    for (int x = 0; x < image.width; ++x) found += image.at(x, y) == color ? 1 : 0;
  }
  return found;
}

/// The smallest and greatest x that show `color`.
std::array<int, 2> columns_of(const Image& image, Color color) {
  std::array<int, 2> columns = {image.width, -1};
  for (int y = 0; y < image.height; ++y) {
    for (int x = 0; x < image.width; ++x) {
      if (!(image.at(x, y) == color)) continue;
      columns = {std::min(columns[0], x), std::max(columns[1], x)};
    }
  }
  return columns;
}

double luminance(Color c) { return 0.2126 * c.r + 0.7152 * c.g + 0.0722 * c.b; }

TEST_CASE("a PNG file reads back through libpng", "[examples][plot]") {
  const TempDir folder;
  const std::string path = folder.file("picture.png");
  Image image(37, 11, {1, 2, 3});
  image.set(36, 10, kRed);
  image.set(0, 5, kWhite);
  write_file(path, "old");
  write_png(path, image);
  CHECK(entries(folder.str()) == 1);
  const std::string bytes = read_file(path);
  CHECK(bytes.substr(0, 8) == "\x89PNG\r\n\x1a\n");

  png_image png{};
  png.version = PNG_IMAGE_VERSION;
  REQUIRE(png_image_begin_read_from_memory(&png, bytes.data(), bytes.size()) != 0);
  CHECK(png.width == 37);
  CHECK(png.height == 11);
  CHECK(png.format == PNG_FORMAT_RGB);
  std::vector<std::uint8_t> pixels(PNG_IMAGE_SIZE(png));
  REQUIRE(png_image_finish_read(&png, nullptr, pixels.data(), 0, nullptr) != 0);
  CHECK(pixels == image.pixels);
}

TEST_CASE("a picture that cannot be written is an error", "[examples][plot]") {
  const TempDir folder;
  const Image image(4, 4);
  CHECK(error_of<UsageError>([&] { write_png(folder.str(), image); }) ==
        "cannot write '" + folder.str() + "': Is a directory");
  CHECK(error_of<UsageError>([&] { write_png(folder.file("no/x.png"), image); }) ==
        "[save] " + folder.file("no/x.png") + ": cannot create " + folder.file("no/x.png.tmp") +
            ": No such file or directory");
  CHECK(error_of<std::runtime_error>([&] { write_png("/dev/full", image); }) ==
        "cannot write '/dev/full': No space left on device");
  CHECK_THROWS_AS(Image(0, 5), std::invalid_argument);
  CHECK_THROWS_AS(Image(5, 40000), std::invalid_argument);
}

TEST_CASE("drawing stays inside the picture", "[examples][plot]") {
  Image image(20, 10);
  image.set(-1, 0, kRed);
  image.set(20, 0, kRed);
  image.fill_rect({18, 8, 100, 100}, kRed);
  CHECK(count(image, kRed) == 4);
  image.fill_rect({-5, -5, 6, 6}, kRed);
  CHECK(count(image, kRed) == 5);
  image.line({-1e300, 5}, {1e300, 5}, kRed);
  image.text(15, 5, "Wide", kBlack);
  image.line({kNan, 0}, {5, 5}, kRed);
  CHECK_THROWS_AS(image.at(20, 0), std::out_of_range);
}

TEST_CASE("lines are anti-aliased and evenly thick", "[examples][plot]") {
  Image image(21, 21);
  image.line({2, 10}, {18, 10}, kBlack, 3);
  for (int x = 3; x <= 17; ++x) {
    for (int y = 9; y <= 11; ++y) REQUIRE(image.at(x, y) == kBlack);
    REQUIRE(image.at(x, 7) == kWhite);
    REQUIRE(image.at(x, 13) == kWhite);
  }
  Image slanted(21, 21);
  slanted.line({0, 3}, {20, 12}, kBlack, 1);
  int grey = 0;
  for (int y = 0; y < 21; ++y) {
    for (int x = 0; x < 21; ++x) {
      const int level = slanted.at(x, y).r;
      grey += level > 0 && level < 255 ? 1 : 0;
    }
  }
  CHECK(grey > 20);
}

TEST_CASE("text shows distinct characters of the face's size", "[examples][plot]") {
  std::vector<std::vector<std::uint8_t>> seen;
  for (char c = '!'; c <= '~'; ++c) {
    Image image(8, 13);
    image.text(0, 0, std::string(1, c), kBlack);
    CHECK(count(image, kBlack) > 0);
    CHECK(std::find(seen.begin(), seen.end(), image.pixels) == seen.end());
    seen.push_back(image.pixels);
  }
  Image space(8, 13);
  space.text(0, 0, " ", kBlack);
  CHECK(count(space, kBlack) == 0);
  Image bar(10, 20);
  bar.text(0, 0, "|", kBlack, Font::kTitle);
  CHECK(count(bar, kBlack) >= 20);
  CHECK(text_width("abc") == 24);
  CHECK(text_width("abc", Font::kTitle) == 30);
  CHECK(fit_text("abcdefgh", 64) == "abcdefgh");
  CHECK(fit_text("abcdefgh", 63) == "abcd...");
}

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
  CHECK(tick_label(3e-9, 1e-9) == "3e-09");
  for (const double span : {1e-12, 0.3, 7.0, 12345.0, 1e15}) {
    const Ticks ticks = nice_ticks(0.1 * span, 1.1 * span, 8);
    CHECK(ticks.values.size() >= 2);
    CHECK(ticks.values.size() <= 8);
  }
}

TEST_CASE("a line chart draws its series, gaps and references", "[examples][plot]") {
  ChartOptions options;
  options.title = "Loss";
  options.reference_lines = {{"bigram", 1.0}};
  Series series{"", {}, {}};
  for (int i = 0; i <= 100; ++i) {
    series.x.push_back(i);
    series.y.push_back(i > 40 && i < 60 ? kNan : 2 - 0.01 * i);
  }
  const Image image = line_chart(options, {series});
  CHECK(image.width == 1200);
  CHECK(image.height == 720);
  const auto columns = columns_of(image, kFirstSeries);
  const int width = columns[1] - columns[0];
  CHECK(width > 800);
  for (int x = columns[0] + width * 43 / 100; x < columns[0] + width * 57 / 100; ++x) {
    for (int y = 0; y < image.height; ++y) REQUIRE_FALSE(image.at(x, y) == kFirstSeries);
  }
  CHECK(count(image, kDashes) > width / 2);
  options.reference_lines.clear();
  CHECK(count(line_chart(options, {series}), kDashes) == 0);

  // A legend adds the swatch of each series.
  series.name = "train";
  const int with_name = count(line_chart(options, {series}), kFirstSeries);
  series.name = "";
  CHECK(with_name != count(line_chart(options, {series}), kFirstSeries));
}

TEST_CASE("a line chart copes with odd data and refuses wrong ones", "[examples][plot]") {
  const ChartOptions plain;
  CHECK(line_chart(plain, {}).width == 1200);
  CHECK(line_chart(plain, {{"all gaps", {0, 1}, {kNan, kNan}}}).width == 1200);
  CHECK(count(line_chart(plain, {{"", {3}, {0.5}}}), kFirstSeries) > 9);  // a dot
  CHECK(line_chart(plain, {{"flat", {0, 1}, {2, 2}}}).width == 1200);
  CHECK(line_chart(plain, {{"huge", {0, 1}, {-1e300, 1e300}}}).width == 1200);
  ChartOptions capped;
  capped.y_max = -5;
  CHECK(line_chart(capped, {{"above", {0, 1}, {1, 2}}}).width == 1200);

  const auto refusal = [](const ChartOptions& options, const std::vector<Series>& series) {
    return error_of<std::invalid_argument>([&] { line_chart(options, series); });
  };
  CHECK(refusal(plain, {{"odd", {1, 2}, {1}}}) == "line_chart: series 'odd' has 2 x and 1 y");
  ChartOptions bad;
  bad.width = 100;
  CHECK(refusal(bad, {}) == "line_chart: smaller than 320 x 240 pixels");
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

TEST_CASE("heat maps colour each cell by its value", "[examples][plot]") {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const Image image = heat_maps("Attention", {{"head", 2, 2, {0, 1, 0.5F, nan}}});
  // Below the title and the caption, cells of 120 pixels from the left margin on.
  const int left = 28;
  const int top = 84;
  CHECK(image.at(left + 60, top + 60) == heat_color(0));
  CHECK(image.at(left + 180, top + 60) == heat_color(1));
  CHECK(image.at(left + 60, top + 180) == heat_color(0.5));
  CHECK(image.at(left + 180, top + 180) == Color{200, 200, 200});
  const Image lifted = heat_maps("Attention", {{"head", 2, 2, {0, 1, 0.25F, 0}}}, 0.5);
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

TEST_CASE("a piano roll shows the notes where they sound", "[examples][plot]") {
  Chorale chorale;
  for (int i = 0; i < 32; ++i) chorale.steps.push_back({i < 16 ? 72 : -1, 64, 60, 48});
  const Image both = piano_roll(chorale, "Two bars");
  for (auto& step : chorale.steps) step[0] = 72;
  const Image all = piano_roll(chorale, "Two bars");
  for (auto& step : chorale.steps) step[0] = -1;
  const Image none = piano_roll(chorale, "Two bars");
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

TEST_CASE("a piano roll of any notes", "[examples][plot]") {
  const Color colour{1, 2, 200};
  const auto drawn = [&](int per_beat, const std::vector<RollNote>& notes, int steps = 0) {
    return piano_roll({.title = "", .steps_per_beat = per_beat, .steps = steps},
                      {{"one", colour, notes}});
  };
  const int legend = count(drawn(12, {}), colour);
  CHECK(count(drawn(12, {{0, 48, 60}}), colour) - legend > 1000);
  CHECK(count(drawn(12, {{0, 1, 60}, {767, 768, 61}}), colour) > legend);  // a pixel to a step
  CHECK(drawn(12, {{0, 48, 60}}, 49).width == drawn(12, {{0, 96, 60}}).width);
  CHECK(drawn(1, {{0, 2000, 60}}).width > drawn(1, {{0, 1000, 60}}).width);

  const auto told = [&](int per_beat, const RollNote& note) {
    return error_of<std::invalid_argument>([&] { drawn(per_beat, {note}); });
  };
  CHECK(told(12, {0, 1, 128}) == "piano_roll: pitch 128 is not in 0 .. 127");
  CHECK(told(12, {3, 3, 60}) == "piano_roll: a note from step 3 to 3");
  CHECK(told(12, {-1, 3, 60}) == "piano_roll: a note from step -1 to 3");
  CHECK(told(2, {0, 4001, 60}) == "piano_roll: 4001 steps are too many to draw (at most 4000)");
  CHECK(told(17, {0, 1, 60}) == "piano_roll: steps_per_beat is 17; expected 1 to 16");
}

}  // namespace
