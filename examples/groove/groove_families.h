// The families of styles that generated songs are played in: patterns for each instrument.
#pragma once

#include <string>
#include <vector>

namespace stretto::examples {

/// A pattern divides a bar into as many equal steps as it has characters: 16 of three ticks or, in
/// triplets, 12 of four. A `.` is silence and a `-` holds the note before it. An `x` strikes a drum
/// or a chord; an `n` is the next note of the broken chord. Of the bass, `r` is the root, `t` the
/// third, `f` the fifth, `o` the octave and `a` a semitone before the root of the next bar.
using Patterns = std::vector<std::string>;

struct GrooveFamily {
  std::string name;
  Patterns kick, snare, cymbal, colour;  // one of each, for the song
  int cymbal_pitch, colour_pitch;
  Patterns bass, piano, guitar;
  int piano_program, guitar_program, bass_program;
  int tempo;
};

const std::vector<GrooveFamily>& groove_families();

}  // namespace stretto::examples
