// Piano music as notes on a grid: what all token languages of this folder read and write.
#pragma once

#include <compare>
#include <string>
#include <vector>

#include "examples/midi/midi.h"
#include "examples/midi/midi_reader.h"

namespace stretto::examples {

/// `start` and `duration` count units of a grid: sixteenths, or hundredths of a second.
struct PianoNote {
  int64_t start;
  int64_t duration;
  int pitch;
  int velocity;
  auto operator<=>(const PianoNote&) const = default;
};

/// What one piano can play: the notes sorted by start, then from the highest pitch down; notes of
/// one pitch that start together are one, the longest and loudest, and a note ends where its pitch
/// starts again.
void play_on_one_piano(std::vector<PianoNote>& notes);

/// Returns the notes as a piano track; a unit of their grid is `ticks` ticks, at least 3. A note of
/// duration 0 sounds for just under half a unit, so that it reads as 0 again: (ticks - 1) / 2
/// ticks.
Track piano_track(const std::vector<PianoNote>& notes, int ticks);

/// Throws UsageError, naming `path`, for files of format 2, whose tracks are pieces of their own,
/// without notes other than those of the drums, and whose last such note ends after more than six
/// hours or 40,000 beats. What follows it, such as a late End of Track, does not count.
void check_piano_file(const MidiFile& file, const std::string& path);

inline constexpr int drum_channel = 9;

}  // namespace stretto::examples
