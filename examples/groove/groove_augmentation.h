// Ways in which one song becomes many grooves (the groove continuation task of Liutkus et al. 2021,
// as published). Each is a pure function of the song and of the random numbers it draws.
#pragma once

#include "examples/common/portable_random.h"
#include "examples/groove/groove.h"

namespace stretto::examples {

/// One of the harmony parts; those without notes only where all are.
Groove choose_harmony(const GrooveSource& song, PortableRandom& random);

/// A quarter of the grooves of at least 8 bars begins later, by a multiple of four bars, up to half
/// of them and to 64.
Groove skip_bars(const Groove& groove, PortableRandom& random);

/// Each track with notes falls silent with a chance of one in ten, but for one of them, which is
/// drawn first.
Groove drop_tracks(const Groove& groove, PortableRandom& random);

/// Moves all but the drums by −5 … 6 semitones; pitches that would leave 0 … 127 by an octave more
/// or less.
Groove transpose(const Groove& groove, PortableRandom& random);
/// The same by a given number of semitones, −12 … 12.
Groove transposed(const Groove& groove, int semitones);

/// All of them, in this order.
Groove augmented(const GrooveSource& song, PortableRandom& random);

}  // namespace stretto::examples
