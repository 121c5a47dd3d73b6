// Collects the notes, controls and signatures of one MIDI track.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <queue>
#include <vector>

#include "midi_events.h"
#include "midi_file.h"

namespace stretto::music {

/// Changes that affect other tracks, too, in the order of the file.
struct MidiChanges {
  struct Program {
    int64_t tick;
    int program;
  };
  std::vector<TempoChange> tempos;
  std::array<std::vector<Program>, 16> programs;  // by channel
};

/// The program of a note whose track has not set one on its channel.
inline constexpr int no_program = -1;

/// Adds a track to a file and processes its events; notes get ticks but not yet seconds.
class MidiTrackPlayer {
 public:
  MidiTrackPlayer(const MidiSource& source, MidiFile& file, MidiChanges& changes);

  void play(const MidiEvent& event);

  /// Ends the notes that still sound at the last event.
  void finish();

 private:
  void start(const MidiEvent& event, int channel);
  void stop(const MidiEvent& event, int channel);
  void end(size_t index, int64_t tick);
  void meta(const MidiEvent& event);

  const MidiSource& source_;
  MidiFile& file_;
  MidiChanges& changes_;
  int track_;
  std::array<int, 16> programs_{};
  std::map<int, std::queue<size_t>> sounding_;  // by channel and pitch: notes, oldest first
};

}  // namespace stretto::music
