// Tables and pictures of grooves.
#pragma once

#include <string>

#include "examples/groove/groove.h"
#include "examples/groove/groove_style.h"

namespace stretto::examples {

/// Returns a table with a row per profile and track, a column per quarter of the outputs, and one
/// for their mean; "-" if there is nothing to compare.
std::string style_table(const StyleSimilarity& similarity);

/// Draws the notes over time, in a color per track.
std::string groove_roll(const music::Song& groove, const std::string& title);

}  // namespace stretto::examples
