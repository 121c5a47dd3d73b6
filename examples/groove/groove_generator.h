// Generated songs for three or more instruments, for training without MIDI files.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "examples/groove/groove.h"

namespace stretto::examples {

/// Returns song `number` of an endless list that depends only on the seed. A song is a chart played
/// in a style. A chart is a key and a chord for every bar, in four-bar phrases. A style is patterns
/// of one or two bars for drums, bass, piano and usually guitar or strings; it is a variation of
/// one of seven families and lasts for the whole song. Every phrase ends with a fill. Songs have 4
/// to 24 bars.
music::Song generate_groove(uint64_t seed, uint64_t number);

/// Returns the songs `first` … `first + count − 1`.
std::vector<music::Song> generate_grooves(uint64_t seed, uint64_t first, int count);

/// A pattern divides a bar into as many equal steps as it has characters: 16 of three ticks or, in
/// triplets, 12 of four. A `.` is silence, a `-` holds the previous note, an `x` strikes a drum or
/// a chord, and an `n` is the next note of the broken chord. In the bass, `r` is the root, `t` the
/// third, `f` the fifth, `o` the octave and `a` a semitone below the root of the next bar.
using Patterns = std::vector<std::string>;

struct GrooveFamily {
  std::string name;
  Patterns kick, snare, cymbal, color;  ///< a song uses one of each
  int cymbal_pitch, color_pitch;
  Patterns bass, piano, guitar;
  int piano_program, guitar_program, bass_program;
  int tempo;
};

/// The families of styles that songs are played in (groove_families.cpp).
const std::vector<GrooveFamily>& groove_families();

}  // namespace stretto::examples
