// The pictures of the examples as SVG: curves, heat maps and piano rolls.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace stretto::examples {

/// A curve through the points (x[i], y[i]). It has a gap where x or y is not finite or has a
/// magnitude above 1e300; a point between gaps is a dot.
struct Series {
  std::string name;
  std::vector<double> x;
  std::vector<double> y;
};

/// A dashed horizontal line, such as the loss of a baseline; it is left out where a Series would
/// have a gap.
struct ReferenceLine {
  std::string label;
  double y;
};

struct ChartOptions {
  std::string title;
  std::string x_label;
  std::string y_label;
  std::vector<ReferenceLine> reference_lines = {};
  std::optional<double> y_max = {};  ///< larger values are cut off
};

/// Draws curves over common axes with a legend; curves 8 to 14 are dashed, 15 to 21 solid again,
/// and so on. Throws Error for a series with x and y of different sizes.
std::string line_chart(const ChartOptions& options, const std::vector<Series>& series);

/// A matrix of `rows` x `columns` values, row by row, with a caption above it.
struct HeatMap {
  std::string caption;
  int rows;
  int columns;
  std::vector<float> values;
};

/// A color scale from `low` to `high`. A gamma below 1 makes small values easier to see.
struct HeatScale {
  double low, high, gamma;

  /// Returns the position of a value on the scale, 0 to 1: a power of its share of the extent.
  double share(double value) const;
};

/// Returns one scale for all values that are finite, from 0 (or the minimum, if negative) to the
/// maximum. gamma is 1/n for the smallest n, at most 8, for which the mean of the positive values
/// has a share of 0.4 or more; 1 if a value is negative.
HeatScale heat_scale(const std::vector<HeatMap>& maps);

/// Replaces blocks of n x n values by their maximum, with the smallest n for which the maps have
/// at most `most` values in all; blocks at the edges may be smaller. NaN remains. Returns n.
int64_t coarsen(std::vector<HeatMap>& maps, int64_t most);

/// Draws the matrices side by side on their heat_scale(), with a color bar; values that are not
/// finite are gray. Maps of more than 200,000 values in all are coarsened. Throws Error for no
/// maps, and for a matrix whose size does not match its number of values.
std::string heat_maps(const std::string& title, std::vector<HeatMap> maps);

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
  const char* color;  ///< as in CSS
  std::vector<RollNote> notes;
};

/// At least `steps` steps are shown, rounded up to whole bars of four beats.
struct RollOptions {
  std::string title;
  int steps_per_beat = 4;
  int steps = 0;
};

/// Draws notes over time, later voices over earlier ones, with the names of the Cs at the left and a
/// line per bar. Notes that end after 2000 beats are left out. Throws Error for a pitch outside
/// 0 .. 127 and for notes that begin before step 0 or do not end after they begin.
std::string piano_roll(const RollOptions& options, const std::vector<RollVoice>& voices);

}  // namespace stretto::examples
