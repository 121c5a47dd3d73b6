// Round numbers for the axes of a chart.
#pragma once

#include <string>
#include <vector>

namespace stretto::examples {

/// Multiples of `step` within the limits of an axis.
struct Ticks {
  double step;
  std::vector<double> values;
};

/// Returns ticks at multiples of 1, 2 or 5 times a power of ten between `low` and `high`: at most
/// `most` (2 or more) ticks, at least `least_step` apart. `low`, `high` and high − low > 0 must be
/// finite.
Ticks nice_ticks(double low, double high, int most, double least_step = 0);

/// Returns the label of the tick at `value`: with the decimals that `step` needs, in thousands (k)
/// or millions (M) for large steps, and with an exponent for steps below 1e-6 or from 1e9 on.
/// Labels of neighboring ticks differ.
std::string tick_label(double value, double step);

}  // namespace stretto::examples
