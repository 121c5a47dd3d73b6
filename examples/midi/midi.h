// Writing Standard MIDI files.
#pragma once

#include <string>
#include <vector>

namespace stretto::examples {

/// Times are in ticks from the start of the song; `pitch` is 0 to 127, `velocity` 1 to 127.
struct Note {
  int start;
  int duration;
  int pitch;
  int velocity;
};

/// `channel` is 0 to 15; `program` is the General MIDI instrument, 0 to 127.
struct Track {
  std::string name;
  int channel;
  int program;
  std::vector<Note> notes;
};

/// The tempo from a tick on.
struct TempoMark {
  int tick;
  double quarters_per_minute;
};

/// A tick is a quarter note divided by `ticks_per_quarter` (1 to 32767).
struct Song {
  int ticks_per_quarter = 480;
  double quarters_per_minute = 80;
  std::vector<Track> tracks;
  std::vector<TempoMark> tempos = {};  ///< tempo changes, in ascending order of ticks
};

/// Returns the bytes of `song` as a format 1 Standard MIDI file in 4/4 time: a track with the
/// tempo, then the song's tracks. Notes may be in any order. Throws std::invalid_argument, naming
/// track and note, for a value out of range.
std::string midi_bytes(const Song& song);

/// Writes midi_bytes(song), replacing the file at `path` atomically. Throws as midi_bytes()
/// and write_file_atomically() do.
void write_midi(const std::string& path, const Song& song);

}  // namespace stretto::examples
