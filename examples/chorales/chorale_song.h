// A chorale as music and as a picture.
#pragma once

#include <string>

#include "examples/chorales/chorale.h"
#include "examples/plot/chart.h"
#include "music/midi_writer.h"

namespace stretto::examples {

/// Returns one track per voice, sung by a choir. Equal pitches on successive steps become one note,
/// because the grid does not show whether a note is repeated.
music::Song to_song(const Chorale& chorale);

/// Draws a chorale's four voices over steps of sixteenths. In unisons the lower voice is drawn
/// thinner, inside the rectangle of the higher voice.
std::string piano_roll(const Chorale& chorale, const std::string& title);

}  // namespace stretto::examples
