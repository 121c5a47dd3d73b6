#include "examples/plot/chart.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <limits>
#include <stdexcept>

#include "examples/plot/canvas.h"
#include "examples/plot/ticks.h"

namespace stretto::examples {
namespace {

constexpr Color grid_color{230, 232, 236};
constexpr Color axis_color{150, 155, 164};
constexpr Color reference_color{120, 124, 132};

// Okabe and Ito's colors, distinguishable with any common form of color vision.
constexpr std::array<Color, 7> palette = {{{0, 114, 178},
                                           {213, 94, 0},
                                           {0, 158, 115},
                                           {204, 121, 167},
                                           {230, 159, 0},
                                           {86, 180, 233},
                                           {90, 90, 90}}};

Color series_color(size_t index) { return palette[index % palette.size()]; }

bool series_dashed(size_t index) { return index / palette.size() % 2 == 1; }

struct Limits {
  double low = std::numeric_limits<double>::infinity();
  double high = -std::numeric_limits<double>::infinity();

  void include(double value) {
    low = std::min(low, value);
    high = std::max(high, value);
  }
};

bool in_range(double value) { return std::abs(value) <= 1e300; }  // sums stay finite

bool drawn(const Series& series, size_t i) {
  return in_range(series.x[i]) && in_range(series.y[i]);
}

void validate(const ChartOptions& options, const std::vector<Series>& series) {
  const auto require = [](bool good, const std::string& message) {
    if (!good) throw std::invalid_argument("line_chart: " + message);
  };
  require(options.width >= 320 && options.height >= 240,
          "the picture is smaller than 320 x 240 pixels");
  for (const Series& s : series) {
    require(s.x.size() == s.y.size(), "series '" + s.name + "' has " + std::to_string(s.x.size()) +
                                          " x and " + std::to_string(s.y.size()) + " y");
  }
  for (const ReferenceLine& line : options.reference_lines)
    require(in_range(line.y), "reference line '" + line.label + "' is not finite");
  require(in_range(options.y_min.value_or(0)), "y_min is not finite");
  require(in_range(options.y_max.value_or(0)), "y_max is not finite");
  require(!options.y_min || !options.y_max || *options.y_min < *options.y_max,
          "y_min is not below y_max");
}

/// Returns limits of a positive extent that contain all values.
Limits widened(Limits limits, bool whole = false) {
  if (!(limits.low <= limits.high)) return {0, 1};
  const double scale = std::max({std::abs(limits.low), std::abs(limits.high), 1e-300});
  if (limits.high - limits.low > 1e-9 * scale) return limits;
  const double margin = limits.low == 0 ? 1 : std::max(0.05 * scale, whole ? 1.0 : 0.0);
  return {limits.low - margin, limits.high + margin};
}

/// True if all values are integers, such as steps: ticks between them have no meaning.
bool whole_x(const std::vector<Series>& series) {
  for (const Series& s : series)
    for (size_t i = 0; i < s.x.size(); ++i)
      if (drawn(s, i) && s.x[i] != std::floor(s.x[i])) return false;
  return true;
}

Limits x_limits(const std::vector<Series>& series) {
  Limits limits;
  for (const Series& s : series) {
    for (size_t i = 0; i < s.x.size(); ++i)
      if (drawn(s, i)) limits.include(s.x[i]);
  }
  return widened(limits, whole_x(series));
}

Limits y_limits(const ChartOptions& options, const std::vector<Series>& series) {
  Limits limits;
  for (const Series& s : series) {
    for (size_t i = 0; i < s.y.size(); ++i)
      if (drawn(s, i)) limits.include(s.y[i]);
  }
  for (const ReferenceLine& line : options.reference_lines) limits.include(line.y);
  limits = widened(limits);
  const double margin = 0.04 * (limits.high - limits.low);
  // An axis of quantities that are never negative does not extend below 0.
  const double floor = limits.low >= 0 ? 0.0 : -std::numeric_limits<double>::infinity();
  const Limits chosen{options.y_min.value_or(std::max(limits.low - margin, floor)),
                      options.y_max.value_or(limits.high + margin)};
  if (chosen.low < chosen.high) return chosen;  // otherwise a given limit is outside the data
  return options.y_min ? Limits{chosen.low, chosen.low + 1} : Limits{chosen.high - 1, chosen.high};
}

/// Maps values to positions in the picture.
struct Axes {
  Rect plot;
  Limits x, y;

  double to_x(double value) const {
    return plot.x + (value - x.low) / (x.high - x.low) * plot.width;
  }
  double to_y(double value) const {
    return plot.y + (y.high - value) / (y.high - y.low) * plot.height;
  }
};

struct LegendEntry {
  size_t series;
  int x, row;
  std::string name;
};

/// Places the entries from left to right in rows of `width` pixels.
std::vector<LegendEntry> lay_out_legend(const std::vector<Series>& series, int width) {
  std::vector<LegendEntry> entries;
  int x = 0;
  int row = 0;
  for (size_t i = 0; i < series.size(); ++i) {
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

int widest_label(const Ticks& ticks) {
  int width = 0;
  for (const double value : ticks.values)
    width = std::max(width, text_width(tick_label(value, ticks.step)));
  return width;
}

/// Returns ticks whose labels fit next to each other in `width` pixels.
Ticks horizontal_ticks(const Limits& limits, int width, bool whole) {
  for (int most = std::max(width / 90, 2);; --most) {
    Ticks ticks = nice_ticks(limits.low, limits.high, most, whole ? 1 : 0);
    const double apart = ticks.step / (limits.high - limits.low) * width;
    if (most == 2 || widest_label(ticks) + 20 <= apart) return ticks;
  }
}

void draw_grid(Canvas& canvas, const Axes& axes, const Ticks& x_ticks, const Ticks& y_ticks) {
  const Rect& plot = axes.plot;
  const double bottom = plot.y + plot.height;
  for (const double value : y_ticks.values) {
    const double y = std::round(axes.to_y(value));
    canvas.fill({plot.x, y, plot.width, 1}, grid_color);
    canvas.text(plot.x - 10, y + 5, tick_label(value, y_ticks.step), faint_ink_color, Font::regular,
                Align::right);
  }
  for (const double value : x_ticks.values) {
    const double x = std::round(axes.to_x(value));
    canvas.fill({x, plot.y, 1, plot.height}, grid_color);
    canvas.fill({x, bottom, 1, 5}, axis_color);
    canvas.text(x, bottom + 21, tick_label(value, x_ticks.step), faint_ink_color, Font::regular,
                Align::middle);
  }
  canvas.fill({plot.x, bottom, plot.width, 1}, axis_color);
}

void draw_references(Canvas& canvas, const Axes& axes, const ChartOptions& options,
                     int label_width) {
  std::vector<ReferenceLine> lines = options.reference_lines;
  std::stable_sort(lines.begin(), lines.end(),
                   [](const ReferenceLine& a, const ReferenceLine& b) { return a.y > b.y; });
  const Rect& plot = axes.plot;
  const double right = plot.x + plot.width;
  double free_y = plot.y;  // labels do not overlap even if lines do
  for (const ReferenceLine& line : lines) {
    if (line.y < axes.y.low || line.y > axes.y.high) continue;
    const double y = std::round(axes.to_y(line.y));
    canvas.line({{plot.x, y}, {right, y}}, reference_color, 2, {plot.x, y - 1, plot.width, 2},
                true);
    const double text_y = std::max(y + 5, free_y);
    free_y = text_y + line_height(Font::regular);
    canvas.text(right + 10, text_y, fit_text(line.label, label_width), faint_ink_color);
  }
}

void draw_series(Canvas& canvas, const Axes& axes, const Series& series, size_t index) {
  constexpr double thickness = 2.2;
  const Rect& plot = axes.plot;
  const Rect clip{plot.x - 4, plot.y - 4, plot.width + 8, plot.height + 8};
  std::vector<Point> points;
  for (size_t i = 0; i <= series.x.size(); ++i) {
    if (i < series.x.size() && drawn(series, i)) {
      points.push_back({axes.to_x(series.x[i]), axes.to_y(series.y[i])});
    } else if (!points.empty()) {
      canvas.line(points, series_color(index), thickness, clip, series_dashed(index));
      points.clear();
    }
  }
}

bool any_drawn(const Series& series) {
  for (size_t i = 0; i < series.x.size(); ++i)
    if (drawn(series, i)) return true;
  return false;
}

}  // namespace

Picture line_chart(const ChartOptions& options, const std::vector<Series>& series) {
  validate(options, series);
  Axes axes{{}, x_limits(series), y_limits(options, series)};
  const Ticks y_ticks = nice_ticks(axes.y.low, axes.y.high, std::max(options.height / 80, 2));

  int label_width = 0;
  for (const ReferenceLine& line : options.reference_lines)
    label_width = std::max(label_width, text_width(line.label));
  label_width = std::min(label_width, options.width / 4);

  const int left = 28 + widest_label(y_ticks);
  const int right = options.reference_lines.empty() ? 36 : label_width + 28;
  const int inner_width = std::max(options.width - left - right, 40);
  const std::vector<LegendEntry> legend = lay_out_legend(series, options.width - left - 36);
  const int legend_rows = legend.empty() ? 0 : legend.back().row + 1;
  int top = options.title.empty() ? 20 : 56;
  const int legend_top = top;
  top += 20 * legend_rows + (legend_rows > 0 ? 8 : 0);
  const int label_top = top;
  top += options.y_label.empty() ? 8 : 26;
  const int bottom = options.x_label.empty() ? 40 : 64;
  const int height = std::max(options.height, top + bottom + 100);
  axes.plot = {double(left), double(top), double(inner_width), double(height - top - bottom)};
  const Ticks x_ticks = horizontal_ticks(axes.x, inner_width, whole_x(series));

  return draw(options.width, height, options.title, [&](Canvas& canvas) {
    canvas.text(left, 37, fit_text(options.title, options.width - left - 20, Font::title),
                ink_color, Font::title);
    for (const LegendEntry& entry : legend) {
      const double x = left + entry.x, y = legend_top + 20 * entry.row + 8;
      canvas.line({{x, y}, {x + 24, y}}, series_color(entry.series), 4, {x, y - 2, 24, 4},
                  series_dashed(entry.series));
      canvas.text(x + 32, y + 5, entry.name, ink_color);
    }
    canvas.text(left, label_top + 13, fit_text(options.y_label, inner_width), faint_ink_color);
    canvas.text(left + inner_width / 2.0, height - 16, fit_text(options.x_label, inner_width),
                faint_ink_color, Font::regular, Align::middle);
    draw_grid(canvas, axes, x_ticks, y_ticks);
    draw_references(canvas, axes, options, label_width);
    for (size_t i = 0; i < series.size(); ++i) draw_series(canvas, axes, series[i], i);
    if (std::none_of(series.begin(), series.end(), any_drawn))
      canvas.text(left + inner_width / 2.0, top + axes.plot.height / 2, "no data", faint_ink_color,
                  Font::regular, Align::middle);
  });
}

}  // namespace stretto::examples
