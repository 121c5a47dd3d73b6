// Keys, chords and the progressions and voicings that the chorale generator is made of.
#pragma once

#include <array>
#include <vector>

#include "examples/common/portable_random.h"

namespace stretto::examples {

/// `tonic` is a pitch class, 0 (C) to 11 (B).
struct Key {
  int tonic;
  bool minor;
};

/// The MIDI number of scale note `degree`: 0 is the tonic at or above note 0, 7 an octave higher.
/// Minor keys count in natural minor.
int scale_pitch(const Key& key, int degree);

/// The highest scale degree (as in scale_pitch) at or below `pitch`.
int degree_of(const Key& key, int pitch);

/// A triad on scale degree `root` (0 to 6), with a seventh if `seventh`; `bass` says which chord
/// tone lies in the bass (0 root, 1 third, 2 fifth).
struct Chord {
  int root = 0;
  int bass = 0;
  bool seventh = false;

  friend bool operator==(const Chord&, const Chord&) = default;
};

/// The pitch classes of `chord` from the root upwards, three or four. Chords with dominant function
/// have the raised leading tone in minor keys too.
std::vector<int> chord_tones(const Key& key, const Chord& chord);

/// How a phrase ends: open on the dominant, or closed on the tonic.
enum class Cadence { half, authentic };

/// The four chords, one a quarter, that make `cadence`; the last lasts two quarters.
std::vector<Chord> cadence_chords(PortableRandom& random, Cadence cadence);

/// A progression of `quarters` (8 or more) chords that starts on the tonic, moves tonic -
/// subdominant - dominant - tonic and ends with `cadence`.
std::vector<Chord> progression(PortableRandom& random, int quarters, Cadence cadence);

/// The pitches of soprano, alto, tenor and bass.
using Voicing = std::array<int, 4>;

/// Lowest and highest pitch of a voice.
struct Range {
  int low;
  int high;
};
inline constexpr std::array<Range, 4> voice_ranges = {{{60, 81}, {52, 74}, {46, 69}, {36, 66}}};

/// What the melody should do on the chord being voiced.
struct Melody {
  int target;        ///< pitch that the soprano should be near
  bool ends_closed;  ///< prefer the tonic in the soprano
};

/// The best voicing of `chord` after `previous` (null at the start): small steps, voices in order
/// and in range, no parallel fifths or octaves if any other way exists, leading tones resolved.
Voicing voice_chord(PortableRandom& random, const Key& key, const Chord& chord,
                    const Voicing* previous, const Melody& melody);

}  // namespace stretto::examples
