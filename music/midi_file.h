// The contents of a Standard MIDI file: notes, tempos, signatures, controls.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "tempo_map.h"

namespace stretto::music {

/// A note of a file.
struct MidiNote {
  int64_t start;         ///< tick of the note-on
  int64_t duration;      ///< ticks, 0 or more
  double start_seconds;  ///< time of the note-on
  double seconds;        ///< duration
  int pitch;             ///< 0 to 127
  int velocity;          ///< 1 to 127
  int channel;           ///< 0 to 15; 9 is the drums
  int program;           ///< 0 to 127
  int track;             ///< index into MidiFile::tracks
  bool operator==(const MidiNote&) const = default;
};

/// `denominator` is the note value that `numerator` counts: 6 and 8 for 6/8.
struct TimeSignature {
  int64_t tick;     ///< the beginning
  int numerator;    ///< 1 to 255
  int denominator;  ///< a power of two
  int track;        ///< index into MidiFile::tracks
  bool operator==(const TimeSignature&) const = default;
};

/// A key, from a tick on.
struct KeySignature {
  int64_t tick;  ///< the beginning
  int sharps;    ///< −7 (seven flats) to 7
  bool minor;    ///< false: major
  int track;     ///< index into MidiFile::tracks
  bool operator==(const KeySignature&) const = default;
};

/// A controller set to a value, such as the sustain pedal (64; down from value 64 on).
struct ControlChange {
  int64_t tick;    ///< the beginning
  int channel;     ///< 0 to 15
  int controller;  ///< 0 to 127
  int value;       ///< 0 to 127
  int track;       ///< index into MidiFile::tracks
  bool operator==(const ControlChange&) const = default;
};

inline constexpr int sustain_pedal = 64;  ///< the controller

/// True for all sound off (120) and all notes off with its variants (123 to 127: omni and mono
/// modes), which end the notes of a channel.
constexpr bool ends_notes(int controller) { return controller == 120 || controller >= 123; }

/// The bend of a channel's pitch, from a tick on; 0 is none.
struct PitchBend {
  int64_t tick;  ///< the beginning
  int channel;   ///< 0 to 15
  int value;     ///< −8192 to 8191
  int track;     ///< index into MidiFile::tracks
  bool operator==(const PitchBend&) const = default;
};

/// `name` is the track's first name as in the file, in any encoding.
struct MidiTrack {
  std::string name;  ///< may be empty
  int64_t end;       ///< the tick of the last event
  bool operator==(const MidiTrack&) const = default;
};

/// The largest number of warnings about one file.
inline constexpr size_t max_midi_warnings = 100;

/// The contents of a MIDI file. Notes are sorted by start, then track, then order in the file; in a
/// file of format 2 by track first. Signatures, controls and bends are in the order of the tracks.
struct MidiFile {
  int format = 1;                 ///< 0: one track, 1: simultaneous tracks, 2: independent tracks
  MidiDivision division;          ///< the length of a tick
  std::vector<MidiTrack> tracks;  ///< names and ends
  std::vector<MidiNote> notes;    ///< of all tracks
  std::vector<TimeSignature> time_signatures;  ///< of all tracks
  std::vector<KeySignature> key_signatures;    ///< of all tracks
  std::vector<ControlChange> controls;         ///< of all tracks
  std::vector<PitchBend> pitch_bends;          ///< of all tracks
  std::vector<TempoMap> tempo_maps;   ///< one, or in format 2 one per track; see tempo_map()
  std::vector<std::string> warnings;  ///< the first max_midi_warnings tolerated defects

  /// Returns the clock of a track.
  const TempoMap& tempo_map(int track = 0) const;
  /// Returns the time of a tick in 1/`parts` of a beat, rounded to the nearest (halves upward),
  /// whatever the tempo and also with a SMPTE division.
  int64_t grid_step(int64_t tick, int64_t parts, int track = 0) const;
  /// Returns the time of the last event of any track.
  double seconds() const;
};

}  // namespace stretto::music
