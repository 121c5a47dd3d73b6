#include "examples/plot/chart.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <limits>
#include <stdexcept>

#include "examples/plot/ticks.h"

namespace stretto::examples {
namespace {

constexpr Color kInk{40, 44, 52};
constexpr Color kFaintInk{110, 116, 126};
constexpr Color kGrid{230, 232, 236};
constexpr Color kAxis{150, 155, 164};
constexpr Color kReference{120, 124, 132};

// Okabe and Ito's colours, told apart with any common colour vision.
constexpr std::array<Color, 7> kPalette = {{{0, 114, 178},
                                            {213, 94, 0},
                                            {0, 158, 115},
                                            {204, 121, 167},
                                            {230, 159, 0},
                                            {86, 180, 233},
                                            {90, 90, 90}}};

Color series_color(std::size_t index) { return kPalette[index % kPalette.size()]; }

struct Limits {
  double low = std::numeric_limits<double>::infinity();
  double high = -std::numeric_limits<double>::infinity();

  void include(double value) {
    low = std::min(low, value);
    high = std::max(high, value);
  }
};

bool drawn(const Series& series, std::size_t i) {
  return std::isfinite(series.x[i]) && std::isfinite(series.y[i]);
}

void validate(const ChartOptions& options, const std::vector<Series>& series) {
  const auto require = [](bool good, const std::string& message) {
    if (!good) throw std::invalid_argument("line_chart: " + message);
  };
  require(options.width >= 320 && options.height >= 240, "smaller than 320 x 240 pixels");
  for (const Series& s : series) {
    require(s.x.size() == s.y.size(), "series '" + s.name + "' has " + std::to_string(s.x.size()) +
                                          " x and " + std::to_string(s.y.size()) + " y");
  }
  for (const ReferenceLine& line : options.reference_lines) {
    require(std::isfinite(line.y), "reference line '" + line.label + "' is not finite");
  }
  require(std::isfinite(options.y_min.value_or(0)), "y_min is not finite");
  require(std::isfinite(options.y_max.value_or(0)), "y_max is not finite");
  require(!options.y_min || !options.y_max || *options.y_min < *options.y_max,
          "y_min is not below y_max");
}

/// Limits that have some extent, whatever was included.
Limits widened(Limits limits) {
  if (!(limits.low <= limits.high)) return {0, 1};
  const double scale = std::max({std::abs(limits.low), std::abs(limits.high), 1e-300});
  if (limits.high - limits.low > 1e-9 * scale) return limits;
  const double margin = limits.low == 0 ? 1 : 0.05 * scale;
  return {limits.low - margin, limits.high + margin};
}

Limits x_limits(const std::vector<Series>& series) {
  Limits limits;
  for (const Series& s : series) {
    for (std::size_t i = 0; i < s.x.size(); ++i) {
      if (drawn(s, i)) limits.include(s.x[i]);
    }
  }
  return widened(limits);
}

Limits y_limits(const ChartOptions& options, const std::vector<Series>& series) {
  Limits limits;
  for (const Series& s : series) {
    for (std::size_t i = 0; i < s.y.size(); ++i) {
      if (drawn(s, i)) limits.include(s.y[i]);
    }
  }
  for (const ReferenceLine& line : options.reference_lines) limits.include(line.y);
  limits = widened(limits);
  const double margin = 0.04 * (limits.high - limits.low);
  // Quantities that are never negative do not get an axis that is.
  const double floor = limits.low >= 0 ? 0.0 : -std::numeric_limits<double>::infinity();
  const Limits chosen{options.y_min.value_or(std::max(limits.low - margin, floor)),
                      options.y_max.value_or(limits.high + margin)};
  if (chosen.low < chosen.high) return chosen;  // else a given limit lies beyond all the data
  return options.y_min ? Limits{chosen.low, chosen.low + 1} : Limits{chosen.high - 1, chosen.high};
}

/// Where values lie in the picture.
struct Axes {
  Rect plot;
  Limits x, y;

  double to_x(double value) const {
    return plot.x + (value - x.low) / (x.high - x.low) * (plot.width - 1);
  }
  double to_y(double value) const {
    return plot.y + (y.high - value) / (y.high - y.low) * (plot.height - 1);
  }
};

struct LegendEntry {
  std::size_t series;
  int x, row;
  std::string name;
};

/// Places the entries from left to right in rows of `width` pixels.
std::vector<LegendEntry> lay_out_legend(const std::vector<Series>& series, int width) {
  std::vector<LegendEntry> entries;
  int x = 0;
  int row = 0;
  for (std::size_t i = 0; i < series.size(); ++i) {
    if (series[i].name.empty()) continue;
    const std::string name = fit_text(series[i].name, width - 34);
    const int needed = 34 + text_width(name);
    if (x > 0 && x + needed > width) {
      x = 0;
      ++row;
    }
    entries.push_back({i, x, row, name});
    x += needed + 24;
  }
  return entries;
}

void draw_grid(Image& image, const Axes& axes, const Ticks& x_ticks, const Ticks& y_ticks) {
  const Rect& plot = axes.plot;
  const int bottom = plot.y + plot.height;
  for (const double value : y_ticks.values) {
    const int y = static_cast<int>(std::lround(axes.to_y(value)));
    image.fill_rect({plot.x, y, plot.width, 1}, kGrid);
    const std::string label = tick_label(value, y_ticks.step);
    image.text(plot.x - 10 - text_width(label), y - 6, label, kFaintInk);
  }
  for (const double value : x_ticks.values) {
    const int x = static_cast<int>(std::lround(axes.to_x(value)));
    image.fill_rect({x, plot.y, 1, plot.height}, kGrid);
    image.fill_rect({x, bottom, 1, 5}, kAxis);
    const std::string label = tick_label(value, x_ticks.step);
    image.text(x - text_width(label) / 2, bottom + 10, label, kFaintInk);
  }
  image.fill_rect({plot.x, bottom, plot.width, 1}, kAxis);
}

void draw_dashes(Image& image, int x, int y, int width, Color color) {
  for (int dash = 0; dash < width; dash += 12) {
    image.fill_rect({x + dash, y, std::min(7, width - dash), 2}, color);
  }
}

void draw_references(Image& image, const Axes& axes, const ChartOptions& options, int label_width) {
  std::vector<ReferenceLine> lines = options.reference_lines;
  std::stable_sort(lines.begin(), lines.end(),
                   [](const ReferenceLine& a, const ReferenceLine& b) { return a.y > b.y; });
  const Rect& plot = axes.plot;
  int free_y = plot.y - 8;  // labels come one below the other even where the lines meet
  for (const ReferenceLine& line : lines) {
    if (line.y < axes.y.low || line.y > axes.y.high) continue;
    const int y = static_cast<int>(std::lround(axes.to_y(line.y)));
    draw_dashes(image, plot.x, y - 1, plot.width, kReference);
    const int text_y = std::max(y - 7, free_y);
    free_y = text_y + glyph_height(Font::kRegular) + 1;
    image.text(plot.x + plot.width + 10, text_y, fit_text(line.label, label_width), kFaintInk);
  }
}

void draw_series(Image& image, const Axes& axes, const Series& series, Color color) {
  Rect clip = axes.plot;
  clip.y -= 2;
  clip.height += 4;
  clip.width += 2;
  std::vector<Point> points;
  for (std::size_t i = 0; i <= series.x.size(); ++i) {
    if (i < series.x.size() && drawn(series, i)) {
      points.push_back({axes.to_x(series.x[i]), axes.to_y(series.y[i])});
    } else if (!points.empty()) {
      image.polyline(points, color, points.size() == 1 ? 5.0 : 2.2, clip);
      points.clear();
    }
  }
}

}  // namespace

Image line_chart(const ChartOptions& options, const std::vector<Series>& series) {
  validate(options, series);
  Axes axes{{}, x_limits(series), y_limits(options, series)};
  const Ticks y_ticks = nice_ticks(axes.y.low, axes.y.high, std::max(options.height / 80, 2));
  const Ticks x_ticks = nice_ticks(axes.x.low, axes.x.high, std::max(options.width / 120, 2));

  int tick_width = 0;
  for (const double value : y_ticks.values) {
    tick_width = std::max(tick_width, text_width(tick_label(value, y_ticks.step)));
  }
  int label_width = 0;
  for (const ReferenceLine& line : options.reference_lines) {
    label_width = std::max(label_width, text_width(line.label));
  }
  label_width = std::min(label_width, options.width / 4);

  const int left = 28 + tick_width;
  const int right = options.reference_lines.empty() ? 36 : label_width + 28;
  const int inner_width = options.width - left - right;
  const std::vector<LegendEntry> legend = lay_out_legend(series, options.width - left - 36);
  const int legend_rows = legend.empty() ? 0 : legend.back().row + 1;
  int top = options.title.empty() ? 20 : 56;
  const int legend_top = top;
  top += 20 * legend_rows + (legend_rows > 0 ? 8 : 0);
  const int label_top = top;
  top += options.y_label.empty() ? 8 : 26;
  const int bottom = options.x_label.empty() ? 40 : 64;
  axes.plot = {left, top, inner_width, std::max(options.height - top - bottom, 40)};

  Image image(options.width, options.height);
  image.text(left, 20, fit_text(options.title, options.width - left - 20, Font::kTitle), kInk,
             Font::kTitle);
  for (const LegendEntry& entry : legend) {
    const int y = legend_top + 20 * entry.row;
    image.fill_rect({left + entry.x, y + 5, 24, 4}, series_color(entry.series));
    image.text(left + entry.x + 32, y, entry.name, kInk);
  }
  image.text(left, label_top, fit_text(options.y_label, inner_width), kFaintInk);
  const std::string x_label = fit_text(options.x_label, inner_width);
  image.text(left + (inner_width - text_width(x_label)) / 2, options.height - 28, x_label,
             kFaintInk);

  draw_grid(image, axes, x_ticks, y_ticks);
  draw_references(image, axes, options, label_width);
  for (std::size_t i = 0; i < series.size(); ++i) {
    draw_series(image, axes, series[i], series_color(i));
  }
  if (std::none_of(series.begin(), series.end(), [](const Series& s) {
        for (std::size_t i = 0; i < s.x.size(); ++i) {
          if (drawn(s, i)) return true;
        }
        return false;
      })) {
    image.text(left + inner_width / 2 - 28, top + axes.plot.height / 2, "no data", kFaintInk);
  }
  return image;
}

}  // namespace stretto::examples
