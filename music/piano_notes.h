// Piano music as notes on a grid, the common representation of the tokenizations in this directory.
#pragma once

#include <compare>
#include <string>
#include <vector>

#include "midi_writer.h"

namespace stretto::music {

/// `start` and `duration` count units of a grid: sixteenths, or hundredths of a second.
struct PianoNote {
  int64_t start;     ///< 0 or more
  int64_t duration;  ///< 0 or more
  int pitch;         ///< 0 to 127
  int velocity;      ///< 1 to 127
  auto operator<=>(const PianoNote&) const = default;
};

/// Makes notes playable on one piano: sorts them by start, then from the highest pitch down; merges
/// notes of one pitch that start together into the longest and loudest; and ends a note when its
/// pitch starts again.
void play_on_one_piano(std::vector<PianoNote>& notes);

/// Returns the notes as a piano track. One unit of their grid is `ticks` ticks, at least 3. A note
/// of duration 0 lasts (ticks − 1) / 2 ticks, just under half a unit, so that it is read as 0
/// again.
Track piano_track(const std::vector<PianoNote>& notes, int ticks);

/// The channel of the drums in General MIDI.
inline constexpr int drum_channel = 9;

}  // namespace stretto::music
