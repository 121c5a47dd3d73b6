// Grooves: short accompaniments in three tracks, bass, drums and harmony, on a grid of
// twelfths of a beat.
#pragma once

#include <array>
#include <cstddef>
#include <string>
#include <vector>

#include "music/midi_writer.h"

namespace stretto::examples {

inline constexpr int groove_beat = 12, groove_bar = 48;  // ticks; a bar has four beats
inline constexpr size_t bass_track = 0, drum_track = 1, harmony_track = 2;
inline constexpr std::array<const char*, 3> groove_track_names = {"bass", "drums", "harmony"};

/// Times are in ticks. `programs` are General MIDI instruments; the drums' program is not used.
struct Groove {
  std::array<std::vector<music::Note>, 3> tracks;
  std::array<int, 3> programs = {33, 0, 0};
  double quarters_per_minute = 120;
};

/// One instrument of a song.
struct GroovePart {
  std::string name;
  int program = 0;
  std::vector<music::Note> notes;
};

/// A song with any number of instruments that could play the harmony; some may have no notes.
struct GrooveSource {
  std::string name;
  GroovePart bass, drums;
  std::vector<GroovePart> harmony;
  double quarters_per_minute = 120;
};

/// Returns the song with `harmony[index]` only; without any harmony that track stays empty.
Groove with_harmony(const GrooveSource& song, size_t index);
/// Returns the song with the harmony part that has the most notes; of several such parts the first.
Groove with_fullest_harmony(const GrooveSource& song);

/// Returns the tick at which the last note ends; 0 without notes.
int end_of(const Groove& groove);
/// Returns the number of bars up to and including the last bar with notes.
int bars_of(const Groove& groove);
/// Returns the notes that end before bar `bars`, counted from 0.
Groove first_bars(const Groove& groove, int bars);
/// Returns the song from bar `bars` on, without notes that begin earlier.
Groove without_bars(Groove groove, int bars);
GrooveSource without_bars(GrooveSource song, int bars);

/// Returns the groove as MIDI: bass on channel 0, drums on 9, harmony on 2.
music::Song to_song(const Groove& groove);

}  // namespace stretto::examples
