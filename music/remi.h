// REMI (Huang & Yang 2020): piano music as bars of 16 sixteenths, with tempos, and notes as pitch,
// velocity and duration.
//
//   Bar  Beat_0 Tempo_89 Note_Pitch_60 Note_Velocity_64 Note_Duration_480 …  Beat_4 …  Bar  EOS
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "midi_file.h"
#include "piano_notes.h"

namespace stretto::music {

/// Kinds of words, with the meaning of `RemiWord::value`. The words are those of the pop piano data
/// of Liutkus et al. (2021).
enum class RemiKind {
  bar,       ///< 0
  beat,      ///< sixteenth of the bar, 0 to 15
  chord,     ///< 11 · root + quality (chords.h), or 132 for no chord
  end,       ///< 0
  duration,  ///< sixteenths, 0 to 16; 0 is a note shorter than half a sixteenth, which still sounds
  pitch,     ///< MIDI note number, 22 to 107
  velocity,  ///< 40, 42, … 86
  tempo      ///< beats per minute: 32, 35, … 224, without eleven of the fast ones
};

/// A word of the vocabulary.
struct RemiWord {
  std::string name;  ///< "Note_Pitch_60"
  RemiKind kind;     ///< the kind
  int value;         ///< see RemiKind
};

/// Sizes and ranges of the vocabulary.
/// @{
inline constexpr int64_t remi_size = 332;        ///< the number of words
inline constexpr int64_t remi_pad = 332;         ///< the id of padding, after the words
inline constexpr int remi_low = 22;              ///< the lowest pitch
inline constexpr int remi_high = 107;            ///< the highest pitch
inline constexpr int remi_chord_qualities = 11;  ///< of chords.h
inline constexpr int remi_no_chord = 12 * remi_chord_qualities;  ///< the value of no chord
/// @}

/// Returns the words; the id of a word is its index, the rank of its name in byte order.
const std::vector<RemiWord>& remi_words();

/// Returns the id of a word, which must exist.
int64_t remi_id(RemiKind kind, int value = 0);

/// Returns the value of that kind nearest to `value`; if two are equally near, the lower one
/// (velocities and tempos).
int remi_nearest(RemiKind kind, double value);

/// A piece on REMI's grid. All starts and durations are in sixteenths.
struct RemiSong {
  /// A tempo or chord.
  struct Mark {
    int64_t start;  ///< in sixteenths
    int value;      ///< see RemiKind
    bool operator==(const Mark&) const = default;
  };
  int64_t bars = 0;              ///< the number of bars
  std::vector<Mark> tempos;      ///< in ascending order, at different starts
  std::vector<Mark> chords;      ///< likewise
  std::vector<PianoNote> notes;  ///< after play_on_one_piano
  bool operator==(const RemiSong&) const = default;
};

/// Returns the piece nearest to `file` (Tokenizer::check_file): onsets and durations rounded to
/// sixteenths, durations at most 16 and 0 below half a sixteenth, velocities rounded to even ones
/// from 40 to 86, tempos to the vocabulary, pitches moved by octaves into 22 … 107, without drums.
/// A sixteenth is a quarter of a beat, whatever the division. Bars always have 16 sixteenths; one
/// of them begins at the first time signature whose bars last a whole note (4/4, 2/2), else at
/// tick 0. With `chords`, a chord is marked where it changes, and no chord where a chord ends
/// (chords.h).
RemiSong quantized(const MidiFile& file, bool chords = false);

/// Returns the words of `song`: each bar begins with Bar; Beat precedes the events at its position:
/// chord, tempo, and notes from the highest down. The words end with an empty bar, which
/// remi_song() removes, and EOS.
std::vector<int64_t> remi_tokens(const RemiSong& song);

/// Returns the piece encoded by words in any order, up to the first EOS. A note is pitch, velocity
/// and duration in a row; words in another order are ignored. Beats may go backwards; words after
/// 100,000 bars are ignored; if words precede the first Bar, a Bar is assumed before them. Invalid
/// ids are ignored.
RemiSong remi_song(const std::vector<int64_t>& tokens);

/// Returns the piece as MIDI: 480 ticks per beat, and 120 beats per minute up to the first tempo. A
/// note of duration 0 lasts 59 ticks, just under half a sixteenth (piano_track).
Song to_song(const RemiSong& song);

}  // namespace stretto::music
