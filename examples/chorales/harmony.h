// Keys, chords, progressions and voicings, the building blocks of the chorale generator.
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

/// Returns the MIDI number of scale note `degree`: 0 is the tonic at or above note 0, 7 an octave
/// higher. Minor keys use the natural minor scale.
int scale_pitch(const Key& key, int degree);

/// Returns the highest scale degree (as in scale_pitch) at or below `pitch`.
int degree_of(const Key& key, int pitch);

/// A triad on scale degree `root` (0 to 6), with a seventh if `seventh`; `bass` is the chord tone
/// in the bass (0 root, 1 third, 2 fifth).
struct Chord {
  int root = 0;
  int bass = 0;
  bool seventh = false;

  friend bool operator==(const Chord&, const Chord&) = default;
};

/// Returns the three or four pitch classes of `chord` from the root upwards. Chords with dominant
/// function have the raised leading tone in minor keys, too.
std::vector<int> chord_tones(const Key& key, const Chord& chord);

/// How a phrase ends: open on the dominant, or closed on the tonic.
enum class Cadence { half, authentic };

/// Returns the four chords of `cadence`, one per quarter; the last lasts two quarters.
std::vector<Chord> cadence_chords(PortableRandom& random, Cadence cadence);

/// Returns a progression of `quarters` (8 or more) chords that starts on the tonic, moves tonic -
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

/// The melody's target for the chord to be voiced.
struct Melody {
  int target;        ///< pitch that the soprano should be near
  bool ends_closed;  ///< true if the soprano should be on the tonic
};

/// Returns the best voicing of `chord` after `previous` (null at the start): small steps,
/// voices in order and in range, parallel fifths or octaves only if there is no alternative,
/// leading tones resolved.
Voicing voice_chord(PortableRandom& random, const Key& key, const Chord& chord,
                    const Voicing* previous, const Melody& melody);

}  // namespace stretto::examples
