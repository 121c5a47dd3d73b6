// A chorale as music.
#pragma once

#include "examples/chorales/chorale.h"
#include "examples/midi/midi.h"

namespace stretto::examples {

/// One track per voice, sung by a choir. Equal pitches on neighbouring steps become one note, since
/// the grid does not say whether a note was struck again.
Song to_song(const Chorale& chorale);

}  // namespace stretto::examples
