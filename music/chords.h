// Recognition of chords.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

namespace stretto::music {

/// The qualities of chords, in the byte order of their names.
enum class ChordQuality {
  augmented,           ///< "+"
  half_diminished,     ///< "/o7"
  dominant,            ///< "7"
  major,               ///< "M"
  major_seventh,       ///< "M7"
  minor,               ///< "m"
  minor_seventh,       ///< "m7"
  diminished,          ///< "o"
  diminished_seventh,  ///< "o7"
  sus2,                ///< "sus2"
  sus4                 ///< "sus4"
};
/// The names of the qualities.
inline constexpr std::array<const char*, 11> chord_quality_names{
    "+", "/o7", "7", "M", "M7", "m", "m7", "o", "o7", "sus2", "sus4"};

/// A chord, or no chord.
struct Chord {
  int root = -1;                               ///< 0 (C) to 11 (B); −1: no chord
  ChordQuality quality = ChordQuality::major;  ///< of a chord
  bool operator==(const Chord&) const = default;
};

/// A note with its time in any unit.
struct ChordNote {
  int64_t start;  ///< 0 or more
  int64_t end;    ///< at least start
  int pitch;      ///< 0 to 127
};

/// Returns the chord of each beat from 0 on, up to the end of the last note. A beat lasts `beat`
/// units.
///
/// Each root that sounds and each of six basic qualities (major, minor, diminished, augmented,
/// sus2, sus4) gets the sum, over the notes in a beat or in two beats, of the sounding time times
/// a weight of the pitch's distance from the root: 10 for the notes of the chord (5 for the
/// second, fourth and fifth of sus2 and sus4), −5 to 1 for other pitches. The best one wins if its
/// sum is at least ten times the length of the window. The lowest pitch that sounds for an eighth
/// of the window is the bass; it decides between chords with the same notes (a major chord over
/// its sixth is m7), and is the root of + and o7. A seventh that sounds makes 7, M7, m7, o7 or
/// /o7. The two beats of a half bar have chords of their own only if both score at least as high
/// as one chord for the half bar.
///
/// Except for o7, /o7 and the root of +, these are the rules of the package chorder, which made the
/// chords of the pop piano data of Liutkus et al. (2021).
/// Throws Error unless beat ≥ 1, 0 ≤ start ≤ end, pitch ≥ 0, and fewer than 2^24 beats.
std::vector<Chord> recognize_chords(const std::vector<ChordNote>& notes, int64_t beat);

}  // namespace stretto::music
