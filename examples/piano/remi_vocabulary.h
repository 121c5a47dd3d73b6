// The words of REMI (Huang & Yang 2020) as the pop piano data of Liutkus et al. (2021) have them.
#pragma once

#include <string>
#include <vector>

namespace stretto::examples {

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

}  // namespace stretto::examples
