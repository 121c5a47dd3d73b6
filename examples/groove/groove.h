// Grooves: short accompaniments in three tracks, bass, drums and harmony, on a grid of twelfths of
// a beat.
#pragma once

#include <array>
#include <cstddef>
#include <string>
#include <vector>

#include "examples/midi/midi.h"

namespace stretto::examples {

inline constexpr int groove_beat = 12, groove_bar = 48;  // ticks; a bar has four beats
inline constexpr size_t bass_track = 0, drum_track = 1, harmony_track = 2;
inline constexpr std::array<const char*, 3> groove_track_names = {"bass", "drums", "harmony"};

/// Times are in ticks. `programs` are General MIDI instruments; that of the drums is not used.
struct Groove {
  std::array<std::vector<Note>, 3> tracks;
  std::array<int, 3> programs = {33, 0, 0};
  double quarters_per_minute = 120;
};

/// One instrument of a song.
struct GroovePart {
  std::string name;
  int program = 0;
  std::vector<Note> notes;
};

/// A song with any number of instruments that could be the harmony; some may be without notes.
struct GrooveSource {
  std::string name;
  GroovePart bass, drums;
  std::vector<GroovePart> harmony;
  double quarters_per_minute = 120;
};

/// The song with `harmony[index]` alone; with no harmony at all that track stays empty.
Groove with_harmony(const GrooveSource& song, size_t index);
/// The song with the harmony part of most notes, of equals the first.
Groove with_fullest_harmony(const GrooveSource& song);

/// The tick at which the last note has ended; 0 without notes.
int end_of(const Groove& groove);
/// How many bars have notes in them or before them.
int bars_of(const Groove& groove);
/// The notes that end before bar `bars`, counted from 0.
Groove first_bars(const Groove& groove, int bars);
/// The song from bar `bars` on: what begins earlier is gone.
Groove without_bars(Groove groove, int bars);
GrooveSource without_bars(GrooveSource song, int bars);

/// Bass on channel 0, drums on 9, harmony on 2.
Song to_song(const Groove& groove);

}  // namespace stretto::examples
