// heat_maps(): matrices in color, such as the attention weights of all heads.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <numbers>
#include <stdexcept>

#include "examples/plot/canvas.h"
#include "examples/plot/chart.h"
#include "examples/plot/ticks.h"

namespace stretto::examples {
namespace {

constexpr Color frame_color{190, 194, 200};
constexpr Color missing_color{200, 200, 200};
constexpr int panel_pixels = 240;  // approximate length of the longer side of a matrix, in pixels
constexpr int gap = 28;
constexpr int caption_height = 20;
constexpr int top_margin = 64;
constexpr int least_bar = 120;

uint8_t to_srgb(double linear) {
  const double x = std::clamp(linear, 0.0, 1.0);
  const double encoded = x <= 0.0031308 ? 12.92 * x : 1.055 * std::pow(x, 1 / 2.4) - 0.055;
  return uint8_t(std::lround(255 * encoded));
}

void validate(const std::vector<HeatMap>& maps, double gamma) {
  if (maps.empty()) throw std::invalid_argument("heat_maps: no maps");
  if (!(gamma > 0) || !std::isfinite(gamma))
    throw std::invalid_argument("heat_maps: gamma must be positive and finite");
  for (const HeatMap& map : maps) {
    if (map.rows < 1 || map.columns < 1 ||
        map.values.size() != size_t(map.rows) * size_t(map.columns)) {
      throw std::invalid_argument("heat_maps: map '" + map.caption + "' has " +
                                  std::to_string(map.values.size()) + " values for " +
                                  std::to_string(map.rows) + " x " + std::to_string(map.columns));
    }
  }
}

/// Maps values to their position on the scale, 0 to 1.
struct Scale {
  double low = 0;
  double high = 0;
  double gamma = 1;

  Color color(double value) const {
    if (!std::isfinite(value)) return missing_color;
    const double share = std::clamp((value - low) / (high - low), 0.0, 1.0);
    return heat_color(std::pow(share, gamma));
  }
};

Scale scale_of(const std::vector<HeatMap>& maps, double gamma) {
  Scale scale;
  scale.gamma = gamma;
  for (const HeatMap& map : maps) {
    for (const float value : map.values) {
      if (!std::isfinite(value)) continue;
      scale.low = std::min(scale.low, double(value));
      scale.high = std::max(scale.high, double(value));
    }
  }
  if (!(scale.high > scale.low)) scale.high = scale.low + 1;
  return scale;
}

/// Returns the number of pixels for `cells` cells of a matrix whose longer side has `longest`
/// cells: whole pixels per cell, or several cells per pixel if there are very many.
int extent(int cells, int longest) {
  if (longest <= panel_pixels) return cells * ((panel_pixels + longest / 2) / longest);
  const double share = double(cells) / longest;
  return std::max(int(std::lround(share * std::min(longest, 2 * panel_pixels))), 1);
}

/// Returns the mean of the cells covered by pixel (x, y) of a map.
double mean_at(const HeatMap& map, int x, int y, int width, int height) {
  const auto first = [](int pixel, int cells, int pixels) {
    return int(static_cast<long long>(pixel) * cells / pixels);
  };
  const int row0 = first(y, map.rows, height);
  const int row1 = std::max(first(y + 1, map.rows, height), row0 + 1);
  const int column0 = first(x, map.columns, width);
  const int column1 = std::max(first(x + 1, map.columns, width), column0 + 1);
  double sum = 0;
  for (int row = row0; row < row1; ++row) {
    for (int column = column0; column < column1; ++column) {
      sum += double(map.values[size_t(row) * size_t(map.columns) + size_t(column)]);
    }
  }
  return sum / ((row1 - row0) * (column1 - column0));
}

void draw_map(Canvas& canvas, const HeatMap& map, const Scale& scale, int x, int y,
              int cell_width) {
  const int longest = std::max(map.rows, map.columns);
  const int width = extent(map.columns, longest);
  const int height = extent(map.rows, longest);
  canvas.text(x, y + 13, fit_text(map.caption, cell_width), ink_color);
  y += caption_height;
  canvas.fill({x - 1.0, y - 1.0, width + 2.0, height + 2.0}, frame_color);
  canvas.pixels(x, y, width, height,
                [&](int dx, int dy) { return scale.color(mean_at(map, dx, dy, width, height)); });
}

/// A value at the color bar, and its label.
struct Mark {
  double value;
  std::string label;
};

/// Returns values with two digits at even distances along the color bar.
std::vector<Mark> root_marks(const Scale& scale) {
  constexpr int count = 5;
  std::vector<Mark> marks;
  for (int i = 0; i < count; ++i) {
    const double share = std::pow(double(i) / (count - 1), 1 / scale.gamma);
    char label[32];
    std::snprintf(label, sizeof label, "%.2g", scale.low + share * (scale.high - scale.low));
    marks.push_back({std::clamp(std::strtod(label, nullptr), scale.low, scale.high), label});
  }
  return marks;
}

/// The colors are spread evenly along the bar.
void draw_color_bar(Canvas& canvas, const Scale& scale, int x, int y, int height) {
  canvas.fill({x - 1.0, y - 1.0, 18, height + 2.0}, frame_color);
  canvas.pixels(x, y, 16, height,
                [&](int, int dy) { return heat_color(1 - double(dy) / (height - 1)); });
  std::vector<Mark> marks;
  if (scale.gamma == 1) {
    const Ticks ticks = nice_ticks(scale.low, scale.high, 6);
    for (const double value : ticks.values) marks.push_back({value, tick_label(value, ticks.step)});
  } else {
    canvas.text(x, y - 7, root_name(scale.gamma), faint_ink_color);
    marks = root_marks(scale);
  }
  for (const Mark& mark : marks) {
    const double share = std::pow((mark.value - scale.low) / (scale.high - scale.low), scale.gamma);
    const double label_y = y + std::round((1 - share) * (height - 1));
    canvas.fill({x + 17.0, label_y, 5, 1}, faint_ink_color);
    canvas.text(x + 27, label_y + 5, mark.label, faint_ink_color);
  }
}

}  // namespace

Color heat_color(double share) {
  // A path through OKLab: lightness rises evenly while the hue changes from indigo over magenta
  // and orange to yellow.
  const double t = std::clamp(share, 0.0, 1.0);
  const double lightness = 0.14 + 0.83 * t;
  const double chroma = 0.05 + 0.14 * std::pow(std::sin(std::numbers::pi * (0.08 + 0.84 * t)), 1.2);
  const double hue = (280 + 180 * t) * std::numbers::pi / 180;
  const double a = chroma * std::cos(hue);
  const double b = chroma * std::sin(hue);
  const auto cube = [](double x) { return x * x * x; };
  const double l = cube(lightness + 0.3963377774 * a + 0.2158037573 * b);
  const double m = cube(lightness - 0.1055613458 * a - 0.0638541728 * b);
  const double s = cube(lightness - 0.0894841775 * a - 1.2914855480 * b);
  return {to_srgb(4.0767416621 * l - 3.3077115913 * m + 0.2309699292 * s),
          to_srgb(-1.2684380046 * l + 2.6097574011 * m - 0.3413193965 * s),
          to_srgb(-0.0041960863 * l - 0.7034186147 * m + 1.7076147010 * s)};
}

double heat_gamma(const std::vector<HeatMap>& maps) {
  constexpr double target = 0.4;
  double sum = 0, count = 0, high = 0;
  for (const HeatMap& map : maps)
    for (const float value : map.values) {
      if (!std::isfinite(value) || value == 0) continue;
      if (value < 0) return 1;
      sum += double(value), count += 1;
      high = std::max(high, double(value));
    }
  if (count == 0) return 1;
  const double roots = std::ceil(std::log(sum / count / high) / std::log(target));
  return 1 / std::clamp(roots, 1.0, 8.0);
}

std::string root_name(double gamma) {
  const double n = 1 / gamma;
  if (n != std::round(n)) {
    char text[32];
    std::snprintf(text, sizeof text, "power %.3g", gamma);
    return text;
  }
  return n == 2 ? "square root" : n == 3 ? "cube root" : std::to_string(int(n)) + "th root";
}

Picture heat_maps(const std::string& title, const std::vector<HeatMap>& maps, double gamma) {
  validate(maps, gamma);
  const Scale scale = scale_of(maps, gamma);
  int cell_width = 120;
  int cell_height = 0;
  for (const HeatMap& map : maps) {
    const int longest = std::max(map.rows, map.columns);
    cell_width = std::max(cell_width, extent(map.columns, longest));
    cell_height = std::max(cell_height, extent(map.rows, longest));
  }
  const int count = int(maps.size());
  const int columns = int(std::ceil(std::sqrt(double(count))));
  const int rows = (count + columns - 1) / columns;
  const int right = gap + columns * (cell_width + gap);
  const int row_height = caption_height + cell_height + gap;
  const int bar_height = std::clamp(cell_height, least_bar, 2 * panel_pixels);
  const int title_width = 2 * gap + text_width(title, Font::title);
  const int width = std::max(right + 110, std::min(title_width, 1600));
  const int height = top_margin + std::max(rows * row_height, caption_height + bar_height + gap);
  return draw(width, height, title, [&](Canvas& canvas) {
    canvas.text(gap, 37, fit_text(title, width - 2 * gap, Font::title), ink_color, Font::title);
    for (int i = 0; i < count; ++i) {
      draw_map(canvas, maps[size_t(i)], scale, gap + i % columns * (cell_width + gap),
               top_margin + i / columns * row_height, cell_width);
    }
    draw_color_bar(canvas, scale, right, top_margin + caption_height, bar_height);
  });
}

}  // namespace stretto::examples
