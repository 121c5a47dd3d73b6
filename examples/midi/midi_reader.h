// Reading Standard MIDI files (MIDI 1.0 detailed specification, "Standard MIDI Files 1.0").
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "examples/midi/midi_events.h"
#include "examples/midi/tempo_map.h"

namespace stretto::examples {

/// Times are in ticks (`start`, `duration`) and seconds. A duration may be 0.
struct MidiNote {
  int64_t start;
  int64_t duration;
  double start_seconds;
  double seconds;
  int pitch;     // 0 to 127
  int velocity;  // 1 to 127
  int channel;   // 0 to 15; 9 is the drums
  int program;   // 0 to 127
  int track;     // index into MidiFile::tracks
};

/// `denominator` is the note value that `numerator` counts: 6 and 8 for 6/8.
struct TimeSignature {
  int64_t tick;
  int numerator;
  int denominator;
  int track;
};

/// `sharps` is -7 (seven flats) to 7.
struct KeySignature {
  int64_t tick;
  int sharps;
  bool minor;
  int track;
};

/// A controller set to a value, such as the sustain pedal (64; down from value 64 on).
struct ControlChange {
  int64_t tick;
  int channel;
  int controller;
  int value;
  int track;
};

/// `name` is the track's first name as in the file, in any encoding.
struct MidiTrack {
  std::string name;
  int64_t end;  ///< the tick of the last event
};

/// The contents of a MIDI file. Notes are sorted by start, then track, then order in the file; in a
/// file of format 2 by track first. Signatures and controls are in the order of the tracks.
struct MidiFile {
  int format = 1;  // 0: one track, 1: tracks that sound together, 2: tracks that do not
  MidiDivision division;
  std::vector<MidiTrack> tracks;
  std::vector<MidiNote> notes;
  std::vector<TimeSignature> time_signatures;
  std::vector<KeySignature> key_signatures;
  std::vector<ControlChange> controls;
  std::vector<TempoMap> tempo_maps;   ///< one, or in format 2 one per track; see tempo_map()
  std::vector<std::string> warnings;  ///< the first tolerated defects: "byte 14: …"

  /// Returns the clock of a track.
  const TempoMap& tempo_map(int track = 0) const;
  /// Returns the time of the last event of any track.
  double seconds() const;
};

inline constexpr size_t max_midi_bytes = size_t{64} << 20;
inline constexpr size_t max_midi_events = 4'000'000;
inline constexpr size_t max_midi_tracks = 65535;

/// Reads the file at `path`, format 0, 1 or 2, also in a RIFF wrapper (RMID).
///
/// A note-off, or a note-on of velocity 0, ends the earliest sounding note of its track, channel
/// and pitch; if no such note sounds, it is ignored. Notes without an end last until the last event
/// of their track. A note's program is the last program set on its channel in its track. If its
/// track has not set one yet, it is the last program set on its channel in any track up to the
/// note's start (not in format 2), else 0.
/// Unknown chunks, meta events and system exclusive data are skipped.
///
/// Missing and surplus bytes cause warnings: truncated files and tracks, tracks without End of
/// Track, bytes after it, wrong chunk lengths and numbers of tracks, meta events of a wrong
/// length or value (they are skipped), and the warnings of MidiEvents. Throws UsageError, in one
/// line with path, byte offset and reason, for a file that cannot be read, has no header or an
/// invalid header, has none of the tracks it announces, contains wrong bytes (see MidiEvents) or
/// exceeds one of the limits above. Memory is proportional to the actual contents of the file,
/// whatever its header claims.
MidiFile read_midi(const std::string& path);

/// Parses the bytes of a file as read_midi() does; `path` is used only in errors.
MidiFile parse_midi(std::string_view bytes, const std::string& path);

}  // namespace stretto::examples
