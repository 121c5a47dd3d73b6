// A chorale as music and as a picture.
#pragma once

#include <string>

#include "examples/chorales/chorale.h"
#include "examples/midi/midi.h"
#include "examples/plot/chart.h"

namespace stretto::examples {

/// One track per voice, sung by a choir. Equal pitches on neighbouring steps become one note, since
/// the grid does not say whether a note was struck again.
Song to_song(const Chorale& chorale);

/// A chorale's four voices over steps of sixteenths. Where they sound in unison, the lower one is
/// drawn narrower, inside the higher one's bar. Throws std::invalid_argument as piano_roll().
Picture piano_roll(const Chorale& chorale, const std::string& title);

}  // namespace stretto::examples
