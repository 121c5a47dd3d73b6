// The pictures an example leaves behind: curves, attention maps and piano rolls.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "examples/plot/picture.h"

namespace stretto::examples {

/// A curve through (x[i], y[i]); where either is not finite, or beyond 1e300, the curve has a gap.
/// A point between gaps is a dot.
struct Series {
  std::string name;
  std::vector<double> x;
  std::vector<double> y;
};

/// A dashed horizontal line, such as the loss of a baseline.
struct ReferenceLine {
  std::string label;
  double y;
};

/// `width` and `height` are in pixels, from 320 x 240; a long legend makes the picture higher. A
/// limit of y left unset follows from the data and the reference lines.
struct ChartOptions {
  std::string title;
  std::string x_label;
  std::string y_label;
  std::vector<ReferenceLine> reference_lines;
  std::optional<double> y_min;
  std::optional<double> y_max;
  int width = 1200;
  int height = 720;
};

/// Curves over common axes with a legend; from the eighth on they are dashed. Throws
/// std::invalid_argument for a series of unequal x and y, a size too small, limits or reference
/// lines that are not finite or beyond 1e300, or y_min >= y_max.
Picture line_chart(const ChartOptions& options, const std::vector<Series>& series);

/// A matrix of `rows` x `columns` values, row after row, with a line of text above it.
struct HeatMap {
  std::string caption;
  int rows;
  int columns;
  std::vector<float> values;
};

/// The matrices side by side on one colour scale from 0 (or the least value, if negative) to the
/// greatest; values that are not finite are grey. The colour is that of share^gamma, so that a
/// gamma below 1 shows small values better; the colour bar is labelled with the values and, for a
/// gamma other than 1, with its root. Throws std::invalid_argument for no maps, a matrix whose size
/// is not its number of values, or a gamma that is not positive and finite.
Picture heat_maps(const std::string& title, const std::vector<HeatMap>& maps, double gamma = 1);

/// A gamma for heat_maps() by which weights such as those of attention are neither black nor all
/// alike: 1 / n for the least n, at most 8, that gives the mean of the positive values 0.4 of the
/// scale or more. 1 where a value is negative.
double heat_gamma(const std::vector<HeatMap>& maps);

/// What a gamma below 1 does, in words: "5th root".
std::string root_name(double gamma);

/// The colour of `share` (0 to 1) on a scale from near black over purple and orange to pale
/// yellow whose lightness rises evenly.
Color heat_color(double share);

/// A note from step `begin` to before step `end`; its bar is `inset` pixels narrower at both edges,
/// at most widest_inset.
constexpr int widest_inset = 4;
struct RollNote {
  int begin;
  int end;
  int pitch;
  int inset = 0;
};

struct RollVoice {
  std::string name;
  Color color;
  std::vector<RollNote> notes;
};

/// At least `steps` steps are shown, in whole bars of four beats.
struct RollOptions {
  std::string title;
  int steps_per_beat = 4;
  int steps = 0;
};

/// Notes over time, later voices over earlier ones, with a keyboard at the left and a line every
/// bar. Throws std::invalid_argument for a pitch outside 0 .. 127, for notes that begin before step
/// 0 or do not end later than they begin, and for a piece too long to draw (above 2000 beats).
Picture piano_roll(const RollOptions& options, const std::vector<RollVoice>& voices);

}  // namespace stretto::examples
