// Collects the notes, controls and signatures of one MIDI track.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <vector>

#include "midi_events.h"
#include "midi_file.h"

namespace stretto::music {

/// Events that affect other tracks, too, in the order of the file.
struct MidiChanges {
  struct Program {
    int64_t tick;
    int program;
  };
  struct OpenNote {
    size_t index;        // into MidiFile::notes
    size_t offset;       // of its note-on in the file, in bytes
    int64_t not_before;  // the earliest tick of its end
  };
  std::vector<TempoChange> tempos;
  std::array<std::vector<Program>, 16> programs;  // by channel
  std::array<std::vector<int64_t>, 16> silences;  // by channel: ticks at which all notes end
  std::map<int, std::vector<int64_t>> releases;   // by key: note-offs that ended no note
  std::map<int, std::vector<OpenNote>> open;      // by key: notes without an end in their track
};

/// The key of a channel and pitch in maps.
constexpr int midi_key(int channel, int pitch) { return channel * 128 + pitch; }

/// The program of a note whose track has not set one on its channel.
inline constexpr int no_program = -1;

/// Adds a track to a file and processes its events; notes get ticks but not yet seconds.
class MidiTrackPlayer {
 public:
  MidiTrackPlayer(const MidiSource& source, MidiFile& file, MidiChanges& changes);

  void play(const MidiEvent& event);

  /// Ends the notes that still sound at the last event, as far as no other track ends them.
  void finish();

 private:
  void start(const MidiEvent& event, int channel);
  void stop(const MidiEvent& event, int channel);
  void stop_all(int64_t tick, int channel);
  void end(const MidiChanges::OpenNote& note, int64_t tick);
  void meta(const MidiEvent& event);

  const MidiSource& source_;
  MidiFile& file_;
  MidiChanges& changes_;
  int track_;
  std::array<int, 16> programs_{};
  std::map<int, std::deque<MidiChanges::OpenNote>> sounding_;  // by key: notes, oldest first
  std::map<int, int64_t> last_end_;  // by key: of the notes that have ended
};

}  // namespace stretto::music
