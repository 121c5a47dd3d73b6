// REMI (Huang & Yang 2020): piano music as bars of 16 sixteenths, with the tempo, and notes as
// pitch, velocity and duration.
//
//   Bar  Beat_0 Tempo_89 Note_Pitch_60 Note_Velocity_64 Note_Duration_480 …  Beat_4 …  Bar  EOS
#pragma once

#include <string>
#include <vector>

#include "examples/piano/notes.h"

namespace stretto::examples {

// The words as the pop piano data of Liutkus et al. (2021) have them.

/// With what `RemiWord::value` is.
enum class RemiKind {
  bar,       // 0
  beat,      // sixteenth of the bar, 0 to 15
  chord,     // 11 · root + quality, or 132 for no chord
  end,       // 0
  duration,  // sixteenths, 0 to 16; 0 is a note shorter than half a sixteenth, which still sounds
  pitch,     // MIDI note number, 22 to 107
  velocity,  // 40, 42, … 86
  tempo      // beats per minute: 32, 35, … 224, without eleven of the fast ones
};

struct RemiWord {
  std::string name;  // "Note_Pitch_60"
  RemiKind kind;
  int value;
};

inline constexpr int remi_size = 332;  // words
inline constexpr int remi_pad = 332;   // the id after them
inline constexpr int remi_low = 22, remi_high = 107;
inline constexpr int remi_chord_qualities = 11, remi_no_chord = 12 * remi_chord_qualities;

/// The words; an id is an index: the rank of the name, by bytes.
const std::vector<RemiWord>& remi_words();

/// The id of a word, which must exist.
int remi_id(RemiKind kind, int value = 0);

/// The value of the word of that kind nearest to `value`, the lower of two: velocities and tempos.
int remi_nearest(RemiKind kind, double value);

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
