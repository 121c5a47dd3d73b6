// Round numbers for the axes of a chart.
#pragma once

#include <string>
#include <vector>

namespace stretto::examples {

/// Multiples of `step`, the first at or above one limit of an axis, the last at or below the other.
struct Ticks {
  double step;
  std::vector<double> values;
};

/// Ticks at 1, 2 or 5 times a power of ten between `low` and `high` (finite, as is high - low > 0),
/// at most `most` (2 or more) of them and no nearer than `least_step`.
Ticks nice_ticks(double low, double high, int most, double least_step = 0);

/// The label of the tick at `value`: with as many decimals as `step` needs, in thousands (k) or
/// millions (M) where the steps are that large, and with an exponent where they are below 1e-6 or
/// from 1e9 on. Labels of neighbours differ.
std::string tick_label(double value, double step);

}  // namespace stretto::examples
