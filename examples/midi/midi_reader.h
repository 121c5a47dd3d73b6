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

/// `start` and `duration` are in ticks, the other two times in seconds. A duration may be 0.
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

/// `name` is the track's first name as it stands in the file, in whatever encoding.
struct MidiTrack {
  std::string name;
  int64_t end;  // the tick of the last event
};

/// What a MIDI file holds. Notes are sorted by start, then track, then order in the file; in a file
/// of format 2 by track first. Signatures and controls stand track by track.
struct MidiFile {
  int format = 1;  // 0: one track, 1: tracks that sound together, 2: tracks that do not
  MidiDivision division;
  std::vector<MidiTrack> tracks;
  std::vector<MidiNote> notes;
  std::vector<TimeSignature> time_signatures;
  std::vector<KeySignature> key_signatures;
  std::vector<ControlChange> controls;
  std::vector<TempoMap> tempo_maps;   // one, or in format 2 one per track; see tempo_map()
  std::vector<std::string> warnings;  // the first defects that were read over: "byte 14: …"

  /// The clock that the track of that index follows.
  const TempoMap& tempo_map(int track = 0) const;
  /// When the last event of any track is.
  double seconds() const;
};

inline constexpr size_t max_midi_bytes = size_t{64} << 20;
inline constexpr size_t max_midi_events = 4'000'000;
inline constexpr size_t max_midi_tracks = 65535;

/// Reads the file at `path`, format 0, 1 or 2, also in a RIFF wrapper (RMID).
///
/// A note-off, or a note-on of velocity 0, ends the note of its track, channel and pitch that began
/// first among those still sounding; with none it is ignored. Notes without an end last to the last
/// event of their track. A note's program is the last one set on its channel in its track or,
/// before any there, in any track up to the note's start (format 2: in its track only); else 0.
/// Unknown chunks, meta events and system exclusive data are skipped.
///
/// Missing and surplus bytes are read over with a warning: files and tracks that are cut off,
/// tracks without End of Track, bytes after it, chunk lengths and numbers of tracks that are wrong,
/// meta events whose length or value is (they are left out); and what MidiEvents forgives. Throws
/// UsageError, in one line with path, byte offset and reason, for what cannot be read, has no or an
/// impossible header, has none of the tracks it announces, holds wrong bytes (see MidiEvents) or
/// exceeds a limit above. Takes memory in proportion to what the file holds, whatever it claims.
MidiFile read_midi(const std::string& path);

/// As read_midi(), from bytes; `path` is only named in errors.
MidiFile parse_midi(std::string_view bytes, const std::string& path);

}  // namespace stretto::examples
