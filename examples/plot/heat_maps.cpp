// heat_maps(): matrices in color, such as the attention weights of all heads.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdio>

#include "core/error.h"
#include "examples/plot/chart.h"
#include "examples/plot/svg.h"

namespace stretto::examples {
namespace {

constexpr int colors = 64;

// Returns color 0 … colors − 1: from indigo over magenta and orange to yellow, with rising
// lightness, as in report/maps.js.
std::string color_at(int index) {
  const double share = double(index) / (colors - 1);
  const double hue = 250 + 165 * share, lightness = 0.08 + 0.79 * share, saturation = 0.8;
  const auto channel = [&](double n) {  // HSL to RGB
    const double k = std::fmod(n + hue / 30, 12);
    return std::lround(255 * (lightness + saturation * std::min(lightness, 1 - lightness) *
                                              std::clamp(std::max(3 - k, k - 9), -1.0, 1.0)));
  };
  return str("rgb(", channel(0), ",", channel(8), ",", channel(4), ")");
}

int64_t parts(int64_t n, int64_t of) { return (n + of - 1) / of; }

HeatMap coarser(const HeatMap& fine, int64_t n) {
  const int64_t rows = parts(fine.rows, n), columns = parts(fine.columns, n);
  HeatMap map{fine.caption, int(rows), int(columns), {}};
  map.values.assign(size_t(rows * columns), -INFINITY);
  for (int64_t i = 0; i < fine.rows; ++i)
    for (int64_t j = 0; j < fine.columns; ++j) {
      float& cell = map.values[size_t(i / n * columns + j / n)];
      const float value = fine.values[size_t(i * fine.columns + j)];
      if (!(value <= cell)) cell = value;  // keeps NaN
    }
  return map;
}

// Draws each color as one path of horizontal lines, as high as a cell.
void draw_map(Svg& svg, const HeatMap& map, const HeatScale& scale, const Box& box) {
  std::array<std::string, colors> paths;
  for (int i = 0; i < map.rows; ++i) {
    int begin = 0, before = -1;
    for (int j = 0; j <= map.columns; ++j) {
      const float value =
          j < map.columns ? map.values[size_t(i) * size_t(map.columns) + size_t(j)] : NAN;
      const int color =
          std::isfinite(value) ? int(std::lround(scale.share(value) * (colors - 1))) : -1;
      if (j < map.columns && color == before) continue;
      if (before >= 0) paths[size_t(before)] += str("M", begin, " ", i, "h", j - begin);
      begin = j, before = color;
    }
  }
  svg.rect(box, "#c8c8c8");
  svg.begin(box, {0, -0.5, double(map.columns), double(map.rows)});
  for (int color = 0; color < colors; ++color)
    if (const std::string& path = paths[size_t(color)]; !path.empty())
      svg.add("<path shape-rendering=\"crispEdges\" stroke=\"" + color_at(color) + "\" d=\"" +
              path + "\"/>");
  svg.end();
}

// The colors are spread evenly along the bar.
void draw_color_bar(Svg& svg, const HeatScale& scale, const Box& box) {
  HeatMap bar{"", colors, 1, {}};
  for (int i = colors - 1; i >= 0; --i) bar.values.push_back(float(i) / (colors - 1));
  draw_map(svg, bar, {0, 1, 1}, box);
  const auto root = std::lround(1 / scale.gamma);
  const std::string name = root == 2   ? "square root"
                           : root == 3 ? "cube root"
                                       : str(root, "th root");
  if (root > 1) svg.text(box.x, box.y - 7, name, faint_ink_color);
  for (const double share : {0.0, 0.25, 0.5, 0.75, 1.0}) {
    char label[32];
    std::snprintf(label, sizeof label, "%.2g",
                  std::lerp(scale.low, scale.high, std::pow(share, 1 / scale.gamma)));
    const double y = box.y + (1 - share) * box.height;
    svg.rect({box.x + 17, y, 5, 1}, faint_ink_color);
    svg.text(box.x + 27, y + 5, label, faint_ink_color);
  }
}

}  // namespace

double HeatScale::share(double value) const {
  return high > low ? std::pow((value - low) / (high - low), gamma) : 0;
}

HeatScale heat_scale(const std::vector<HeatMap>& maps) {
  double low = 0, high = 0, sum = 0, count = 0;
  for (const HeatMap& map : maps)
    for (const double value : map.values)
      if (std::isfinite(value) && value != 0) {
        low = std::min(low, value), high = std::max(high, value);
        sum += value, count += 1;
      }
  if (low < 0 || count == 0) return {low, high, 1};
  const double roots = std::ceil(std::log(sum / count / high) / std::log(0.4));
  return {low, high, 1 / std::clamp(roots, 1.0, 8.0)};
}

int64_t coarsen(std::vector<HeatMap>& maps, int64_t most) {
  int64_t n = 0, values = most + 1;
  while (values > most) {
    ++n, values = 0;
    for (const HeatMap& map : maps) values += parts(map.rows, n) * parts(map.columns, n);
    if (values == int64_t(maps.size())) break;
  }
  for (HeatMap& map : maps)
    if (n > 1) map = coarser(map, n);
  return n;
}

std::string heat_maps(const std::string& title, std::vector<HeatMap> maps) {
  constexpr int panel = 240, gap = 28, top = 84;  // panel: the longer side of a map
  check(!maps.empty(), "heat_maps", "no maps; at least one is needed");
  for (const HeatMap& map : maps)
    check(map.rows > 0 && map.columns > 0 &&
              map.values.size() == size_t(map.rows) * size_t(map.columns),
          "heat_maps", "map '", map.caption, "' has ", map.values.size(), " values for ", map.rows,
          " x ", map.columns);
  const HeatScale scale = heat_scale(maps);
  coarsen(maps, 200'000);
  double height = 120;  // of a row of maps
  for (const HeatMap& map : maps)
    height = std::max(height, double(panel) * map.rows / std::max(map.rows, map.columns));
  const int in_a_row = int(std::ceil(std::sqrt(double(maps.size()))));
  const int right = gap + in_a_row * (panel + gap);

  const double title_width = std::min(48 + text_width(title, heading_size), 1600.0);
  const int64_t rows = parts(int64_t(maps.size()), in_a_row);
  Svg svg(std::max(right + 110, int(title_width)), top + int(double(rows) * (height + 48)), title);
  for (int i = 0; i < int(maps.size()); ++i) {
    const HeatMap& map = maps[size_t(i)];
    const int column = i % in_a_row, row = i / in_a_row;
    const double x = gap + column * (panel + gap), y = top + row * (height + 48);
    const double cell = double(panel) / std::max(map.rows, map.columns);
    svg.text(x, y - 7, fit_text(map.caption, panel), ink_color);
    draw_map(svg, map, scale,
             {x, y, std::max(cell * map.columns, 1.0), std::max(cell * map.rows, 1.0)});
  }
  draw_color_bar(svg, scale, {double(right), top, 16, height});
  return svg.finished();
}

}  // namespace stretto::examples
