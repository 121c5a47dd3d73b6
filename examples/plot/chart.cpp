#include "examples/plot/chart.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdio>
#include <utility>

#include "core/error.h"
#include "examples/plot/svg.h"

namespace stretto::examples {
namespace {

constexpr const char *grid_color = "#e6e8ec", *axis_color = "#969ba4", *reference_color = "#787c84";
constexpr int width = 1200, right_margin = 36;

// Okabe and Ito's colors, distinguishable with any common form of color vision.
constexpr std::array palette = {"#0072b2", "#d55e00", "#009e73", "#cc79a7",
                                "#e69f00", "#56b4e9", "#5a5a5a"};

const char* color_of(size_t index) { return palette[index % palette.size()]; }
bool is_dashed(size_t index) { return index / palette.size() % 2 == 1; }

bool is_drawn(double value) { return std::abs(value) <= 1e300; }  // sums stay finite
bool is_drawn(const Series& s, size_t i) { return is_drawn(s.x[i]) && is_drawn(s.y[i]); }

struct Axis {
  double low = HUGE_VAL, high = -HUGE_VAL;
  double begin = 0, end = 0;  // of the picture: the pixels of low and high

  void include(double value) { low = std::min(low, value), high = std::max(high, value); }
  // Makes the extent positive.
  void widen() {
    if (low > high) low = 0, high = 1;
    const double scale = std::max({std::abs(low), std::abs(high), 1e-300});
    if (high - low > 1e-9 * scale) return;
    const double margin = low == 0 ? 1 : 0.05 * scale;
    low -= margin, high += margin;
  }
  double pixel(double value) const { return begin + (value - low) / (high - low) * (end - begin); }
};

struct Tick {
  double value;
  std::string label;
};

// Returns at most `most` ticks at multiples of 1, 2 or 5 times a power of ten, at least `least`
// apart.
std::vector<Tick> ticks_of(const Axis& axis, int most, double least = 0) {
  double power = std::pow(10.0, std::floor(std::log10((axis.high - axis.low) / most)));
  for (;; power *= 10)
    for (const double factor : {1.0, 2.0, 5.0}) {
      const double step = factor * power, first = std::ceil(axis.low / step - 1e-9),
                   last = std::floor(axis.high / step + 1e-9);
      if (last - first >= most || step < least) continue;
      std::vector<Tick> ticks;
      for (int k = 0; k <= int(last - first); ++k) {
        const double i = first + k;
        char label[32];  // 12 digits: neighbors differ, and rounding errors are invisible
        std::snprintf(label, sizeof label, "%.12g", i == 0 ? 0 : i * step);
        ticks.push_back({i * step, label});
      }
      return ticks;
    }
}

// Sets the limits of the axes; returns false if there is nothing to draw.
bool set_limits(Axis& x, Axis& y, const ChartOptions& options, const std::vector<Series>& series) {
  for (const Series& s : series)
    for (size_t i = 0; i < s.x.size(); ++i)
      if (is_drawn(s, i)) x.include(s.x[i]), y.include(s.y[i]);
  const bool any = x.low <= x.high;
  for (const ReferenceLine& line : options.reference_lines)
    if (is_drawn(line.y)) y.include(line.y);
  x.widen(), y.widen();
  const double margin = 0.04 * (y.high - y.low), least = y.low >= 0 ? 0 : -HUGE_VAL;
  y.low = std::max(y.low - margin, least);  // an axis of losses does not extend below 0
  y.high += margin;
  if (options.y_max && *options.y_max > y.low) y.high = std::min(y.high, *options.y_max);
  return any;
}

// True if all values are integers, such as steps: ticks between them have no meaning.
bool is_whole(const std::vector<Series>& series) {
  for (const Series& s : series)
    for (size_t i = 0; i < s.x.size(); ++i)
      if (is_drawn(s, i) && s.x[i] != std::floor(s.x[i])) return false;
  return true;
}

// The places of the names of the series, from the left to the right and downwards.
struct Legend {
  double left, entry_width;
  size_t columns, rows;

  Legend(const std::vector<Series>& series, double from) : left(from) {
    double name_width = 0;
    for (const Series& s : series) name_width = std::max(name_width, text_width(s.name));
    const double all = width - right_margin - left;
    entry_width = std::min(name_width + 56, all);
    columns = size_t(all / entry_width);
    rows = name_width > 0 ? (series.size() + columns - 1) / columns : 0;
  }
  void draw(Svg& svg, const std::vector<Series>& series) const {
    for (size_t i = 0; i < series.size() && rows > 0; ++i) {
      const size_t column = i % columns, row = i / columns;
      const double x = left + double(column) * entry_width, y = 64 + 20 * double(row);
      svg.line({{x, y}, {x + 24, y}}, color_of(i), 4, is_dashed(i));
      svg.text(x + 32, y + 5, fit_text(series[i].name, entry_width - 56), ink_color);
    }
  }
};

void draw_grid(Svg& svg, const Axis& x, const Axis& y, const std::vector<Tick>& x_ticks,
               const std::vector<Tick>& y_ticks) {
  for (const Tick& tick : y_ticks) {
    const double at = std::round(y.pixel(tick.value));
    svg.rect({x.begin, at, x.end - x.begin, 1}, grid_color);
    svg.text(x.begin - 10, at + 5, tick.label, faint_ink_color, "end");
  }
  for (const Tick& tick : x_ticks) {
    const double at = std::round(x.pixel(tick.value));
    svg.rect({at, y.end, 1, y.begin - y.end + 5}, grid_color);
    svg.text(at, y.begin + 21, tick.label, faint_ink_color, "middle");
  }
  svg.rect({x.begin, y.begin, x.end - x.begin, 1}, axis_color);
}

void draw_references(Svg& svg, const Axis& x, const Axis& y, std::vector<ReferenceLine> lines) {
  std::stable_sort(lines.begin(), lines.end(),
                   [](const auto& a, const auto& b) { return a.y > b.y; });
  double free_y = y.end;  // labels do not overlap even if lines do
  for (const ReferenceLine& line : lines) {
    if (!is_drawn(line.y) || line.y > y.high) continue;
    const double at = y.pixel(line.y), text_y = std::max(at + 5, free_y);
    free_y = text_y + 16;
    svg.line({{x.begin, at}, {x.end, at}}, reference_color, 2, true);
    svg.text(x.end + 10, text_y, fit_text(line.label, width - x.end - 10), faint_ink_color);
  }
}

void draw_curve(Svg& svg, const Axis& x, const Axis& y, const Series& series, size_t index) {
  std::vector<std::pair<double, double>> points;
  for (size_t i = 0; i <= series.x.size(); ++i)
    if (i < series.x.size() && is_drawn(series, i)) {  // browsers compute in f32: no huge numbers
      points.emplace_back(x.pixel(series.x[i]), std::clamp(y.pixel(series.y[i]), -1e5, 1e5));
    } else if (!points.empty()) {
      svg.line(points, color_of(index), 2.2, is_dashed(index));
      points.clear();
    }
}

}  // namespace

std::string line_chart(const ChartOptions& options, const std::vector<Series>& series) {
  for (const Series& s : series)
    check(s.x.size() == s.y.size(), "line_chart", "series '", s.name, "' has ", s.x.size(),
          " x and ", s.y.size(), " y; their numbers must be equal");
  Axis x, y;
  const bool any = set_limits(x, y, options, series);
  const auto x_ticks = ticks_of(x, 10, is_whole(series) ? 1 : 0), y_ticks = ticks_of(y, 9);
  double label_width = 0, tick_width = 0;
  for (const Tick& tick : y_ticks) tick_width = std::max(tick_width, text_width(tick.label));
  for (const ReferenceLine& line : options.reference_lines)
    label_width = std::max(label_width, text_width(line.label));
  x.begin = 28 + tick_width;
  x.end = width - right_margin - std::min(label_width, width / 4.0);
  const Legend legend(series, x.begin);
  y.end = 84 + 20 * double(legend.rows);
  y.begin = std::max(656.0, y.end + 400);

  Svg svg(width, int(y.begin) + 64, options.title);
  legend.draw(svg, series);
  const double middle = (x.begin + x.end) / 2;
  svg.text(x.begin, y.end - 12, options.y_label, faint_ink_color);
  svg.text(middle, y.begin + 48, options.x_label, faint_ink_color, "middle");
  draw_grid(svg, x, y, x_ticks, y_ticks);
  draw_references(svg, x, y, options.reference_lines);
  const Box plot{x.begin - 4, y.end - 4, x.end - x.begin + 8, y.begin - y.end + 8};
  svg.begin(plot, plot);
  for (size_t i = 0; i < series.size(); ++i) draw_curve(svg, x, y, series[i], i);
  svg.end();
  if (!any) svg.text(middle, (y.begin + y.end) / 2, "no data", faint_ink_color, "middle");
  return svg.finished();
}

}  // namespace stretto::examples
