// Songs for three or more instruments, for those who have no MIDI files at hand.
#pragma once

#include <cstdint>
#include <vector>

#include "examples/groove/groove.h"

namespace stretto::examples {

/// Song `number` of an endless list that depends on the seed alone: a chart, which is a key and a
/// chord for every bar in four-bar phrases, played in a style, which is patterns of a bar or two
/// for drums, bass, piano and mostly guitar or strings. Styles belong to one of seven families,
/// with variations of their own, and last for the whole song; every phrase ends with a fill. Songs
/// have 4 to 24 bars; names are "chart.style".
GrooveSource generate_groove(uint64_t seed, uint64_t number);

/// Songs `first` … `first + count − 1`.
std::vector<GrooveSource> generate_grooves(uint64_t seed, uint64_t first, int count);

}  // namespace stretto::examples
