// The contents of a Standard MIDI file: notes, tempos, signatures, controls.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "tempo_map.h"

namespace stretto::music {

/// Times are in ticks (`start`, `duration`) and seconds. A duration may be 0.
struct MidiNote {
  int64_t start;
  int64_t duration;
  double start_seconds;
  double seconds;
  int pitch;     ///< 0 to 127
  int velocity;  ///< 1 to 127
  int channel;   ///< 0 to 15; 9 is the drums
  int program;   ///< 0 to 127
  int track;     ///< index into MidiFile::tracks
  bool operator==(const MidiNote&) const = default;
};

/// `denominator` is the note value that `numerator` counts: 6 and 8 for 6/8.
struct TimeSignature {
  int64_t tick;
  int numerator;
  int denominator;
  int track;
  bool operator==(const TimeSignature&) const = default;
};

/// `sharps` is -7 (seven flats) to 7.
struct KeySignature {
  int64_t tick;
  int sharps;
  bool minor;
  int track;
  bool operator==(const KeySignature&) const = default;
};

/// A controller set to a value, such as the sustain pedal (64; down from value 64 on).
struct ControlChange {
  int64_t tick;
  int channel;
  int controller;
  int value;
  int track;
  bool operator==(const ControlChange&) const = default;
};

/// The bend of a channel's pitch, −8192 to 8191; 0 is none.
struct PitchBend {
  int64_t tick;
  int channel;
  int value;
  int track;
  bool operator==(const PitchBend&) const = default;
};

/// `name` is the track's first name as in the file, in any encoding.
struct MidiTrack {
  std::string name;
  int64_t end;  ///< the tick of the last event
  bool operator==(const MidiTrack&) const = default;
};

/// The largest number of warnings about one file.
inline constexpr size_t max_midi_warnings = 100;

/// The contents of a MIDI file. Notes are sorted by start, then track, then order in the file; in a
/// file of format 2 by track first. Signatures, controls and bends are in the order of the tracks.
struct MidiFile {
  int format = 1;  ///< 0: one track, 1: tracks that sound together, 2: tracks that do not
  MidiDivision division;
  std::vector<MidiTrack> tracks;
  std::vector<MidiNote> notes;
  std::vector<TimeSignature> time_signatures;
  std::vector<KeySignature> key_signatures;
  std::vector<ControlChange> controls;
  std::vector<PitchBend> pitch_bends;
  std::vector<TempoMap> tempo_maps;   ///< one, or in format 2 one per track; see tempo_map()
  std::vector<std::string> warnings;  ///< the first max_midi_warnings tolerated defects

  /// Returns the clock of a track.
  const TempoMap& tempo_map(int track = 0) const;
  /// Returns the time of the last event of any track.
  double seconds() const;
};

}  // namespace stretto::music
