// The picture of a chorale.
#pragma once

#include <string>

#include "examples/chorales/chorale.h"
#include "examples/plot/chart.h"

namespace stretto::examples {

/// A chorale's four voices over steps of sixteenths. Where they sound in unison, the lower one is
/// drawn narrower, inside the higher one's bar. Throws std::invalid_argument as piano_roll().
Picture piano_roll(const Chorale& chorale, const std::string& title);

}  // namespace stretto::examples
