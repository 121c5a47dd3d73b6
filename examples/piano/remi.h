// REMI (Huang & Yang 2020): piano music as bars of 16 sixteenths, with the tempo, and notes as
// pitch, velocity and duration.
//
//   Bar  Beat_0 Tempo_89 Note_Pitch_60 Note_Velocity_64 Note_Duration_480 …  Beat_4 …  Bar  EOS
#pragma once

#include <string>
#include <vector>

#include "examples/piano/notes.h"
#include "examples/piano/remi_vocabulary.h"

namespace stretto::examples {

/// A piece on REMI's grid. All starts and durations are in sixteenths.
struct RemiSong {
  struct Mark {
    int64_t start;
    int value;  // of RemiWord
    bool operator==(const Mark&) const = default;
  };
  int64_t bars = 0;
  std::vector<Mark> tempos, chords;  // each start later than the one before
  std::vector<PianoNote> notes;      // play_on_one_piano
  bool operator==(const RemiSong&) const = default;
};

/// The piece nearest to `file` (check_piano_file): onsets and durations to the nearest sixteenth,
/// durations at most 16 and 0 below half a sixteenth, velocities to even ones from 40 to 86, tempos
/// to the vocabulary, pitches moved by octaves into 22 … 107, drums left out. A sixteenth is a
/// quarter of a beat, whatever the division. Bars always have 16 of them: one begins where the
/// file's first signature of whole notes (4/4, 2/2) stands, or at the start. Chords are not
/// recognised.
RemiSong quantised(const MidiFile& file);

/// The words of `song`: each bar begins with Bar; Beat stands before what happens there, which is
/// its chord, its tempo, and its notes from the highest down. A Bar and EOS end it.
std::vector<int> remi_tokens(const RemiSong& song);

/// The piece that words in any order stand for, up to the first EOS. A note is pitch, velocity and
/// duration in a row, other orders are none; beats may go backwards; a Bar is tacitly put before
/// what precedes the first. Numbers that are no words are passed over.
RemiSong remi_song(const std::vector<int>& tokens);

/// Returns the piece to write as MIDI: 480 ticks a beat, and 120 beats a minute up to the first
/// tempo. A note of duration 0 sounds for 59 ticks, just under half a sixteenth (piano_track).
Song to_song(const RemiSong& song);

}  // namespace stretto::examples
