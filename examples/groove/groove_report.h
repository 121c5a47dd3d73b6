// What groove shows of grooves: tables and pictures.
#pragma once

#include <string>

#include "examples/groove/groove.h"
#include "examples/groove/groove_style.h"
#include "examples/plot/picture.h"

namespace stretto::examples {

/// A line for every profile and track, a column for every quarter of the outputs and one for their
/// mean; "-" where there is nothing to compare.
std::string style_table(const StyleSimilarity& similarity);

/// The notes over time, a colour for each track. Of a piece too long to draw (2000 beats), its
/// beginning.
Picture groove_roll(const Groove& groove, const std::string& title);

}  // namespace stretto::examples
