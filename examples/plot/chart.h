// The pictures of the examples: curves, heat maps and piano rolls.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "examples/plot/picture.h"

namespace stretto::examples {

/// A curve through the points (x[i], y[i]). It has a gap where x or y is not finite or has a
/// magnitude above 1e300; a point between gaps is a dot.
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

/// `width` and `height` are in pixels, at least 320 x 240; a long legend makes the picture taller.
/// If y_min or y_max is not set, it is computed from the data and the reference lines.
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

/// Draws curves over common axes with a legend. Curves 8 to 14 are dashed, 15 to 21 solid again,
/// and so on. Throws std::invalid_argument for a series with x and y of different sizes, a picture
/// that is too small, limits or reference lines that are not finite or have a magnitude above
/// 1e300, or y_min >= y_max.
Picture line_chart(const ChartOptions& options, const std::vector<Series>& series);

/// A matrix of `rows` x `columns` values, row by row, with a caption above it.
struct HeatMap {
  std::string caption;
  int rows;
  int columns;
  std::vector<float> values;
};

/// Draws the matrices side by side on one color scale from 0 (or the minimum, if negative) to the
/// maximum; values that are not finite are gray. A value at position `share` on the scale (0 to 1)
/// gets heat_color(share^gamma): a gamma below 1 makes small values easier to see. The color bar is
/// labeled with the values and, for a gamma other than 1, with root_name(gamma). Throws
/// std::invalid_argument for no maps, a matrix whose size does not match its number of values, or a
/// gamma that is not positive and finite.
Picture heat_maps(const std::string& title, const std::vector<HeatMap>& maps, double gamma = 1);

/// Returns a gamma for heat_maps() that makes small weights, such as those of attention, visible:
/// 1/n for the smallest n, at most 8, for which the mean of the positive values is at 0.4 of the
/// scale or more. 1 if a value is negative.
double heat_gamma(const std::vector<HeatMap>& maps);

/// Returns the name of a gamma other than 1: "square root", "cube root", "5th root" for gamma 1/n,
/// otherwise for example "power 0.3".
std::string root_name(double gamma);

/// Returns the color of `share` (0 to 1) on a scale from near black over purple and orange to pale
/// yellow, with evenly rising lightness.
Color heat_color(double share);

/// The largest RollNote::inset.
constexpr int widest_inset = 4;

/// A note from step `begin` to just before step `end`. Its bar is `inset` pixels thinner at the top
/// and at the bottom; `inset` is at most widest_inset.
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

/// At least `steps` steps are shown, rounded up to whole bars of four beats.
struct RollOptions {
  std::string title;
  int steps_per_beat = 4;
  int steps = 0;
};

/// Draws notes over time, later voices over earlier ones, with a keyboard at the left and a line
/// per bar. Throws std::invalid_argument for a pitch outside 0 .. 127, for notes that begin before
/// step 0 or do not end after they begin, and for a piece of more than 2000 beats.
Picture piano_roll(const RollOptions& options, const std::vector<RollVoice>& voices);

}  // namespace stretto::examples
