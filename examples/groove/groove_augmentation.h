// Data augmentation that turns one song into many grooves (the groove continuation task of Liutkus
// et al. 2021, as published). Each function depends only on the song and on its random numbers.
#pragma once

#include "examples/common/portable_random.h"
#include "examples/groove/groove.h"

namespace stretto::examples {

/// Chooses one of the harmony parts at random; chooses a part without notes only if no part has
/// notes.
music::Song choose_harmony(const music::Song& song, PortableRandom& random);

/// With a probability of 1/4, removes bars from the beginning of a groove of at least 8 bars: a
/// multiple of four bars, at most half of the bars and at most 64.
music::Song skip_bars(const music::Song& groove, PortableRandom& random);

/// Chooses one of the tracks with notes at random and keeps it. Removes the notes of each other
/// track with a probability of 1/10.
music::Song drop_tracks(const music::Song& groove, PortableRandom& random);

/// Transposes all tracks except the drums by −5 … 6 semitones; pitches outside 0 … 127 move
/// back by an octave.
music::Song transpose(const music::Song& groove, PortableRandom& random);
/// Transposes by a given number of semitones, −12 … 12.
music::Song transposed(const music::Song& groove, int semitones);

/// Applies choose_harmony, skip_bars, drop_tracks and transpose, in this order.
music::Song augmented(const music::Song& song, PortableRandom& random);

}  // namespace stretto::examples
