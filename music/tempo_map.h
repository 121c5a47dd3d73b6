// The clock of a MIDI file: converts ticks to seconds and beats, under changing tempos.
#pragma once

#include <cstdint>
#include <vector>

namespace stretto::music {

/// The length of a tick: 1 / ticks_per_quarter of a quarter note or, if ticks_per_quarter is 0
/// (SMPTE), 1 / ticks_per_frame of a film frame.
struct MidiDivision {
  int ticks_per_quarter = 480;  ///< 1 to 32767; 0 if ticks divide frames
  int frames_per_second = 0;    ///< 1 to 128; 29 means 30000 / 1001 ("29.97 drop-frame")
  int ticks_per_frame = 0;      ///< 1 to 255
  bool operator==(const MidiDivision&) const = default;
};

/// From `tick` on, a quarter note lasts `microseconds_per_quarter`, 1 to 2^24 - 1.
struct TempoChange {
  int64_t tick;                  ///< 0 or more
  int microseconds_per_quarter;  ///< 1 to 2^24 − 1
  bool operator==(const TempoChange&) const = default;
};

/// Converts between ticks, seconds and beats (quarter notes), all counted from 0 at the start.
/// Before the first change a quarter note lasts half a second. If several changes have the same
/// tick, the last one is used. With a SMPTE division the tempo affects only the beats, because
/// ticks have a fixed length.
class TempoMap {
 public:
  /// Changes may be in any order. Throws Error for a division or a tempo out of
  /// range and for a change before tick 0.
  explicit TempoMap(const MidiDivision& division = {}, std::vector<TempoChange> changes = {});

  /// Returns the time of a tick in seconds.
  double seconds(double tick) const;
  /// Returns the tick at a time in seconds.
  double tick(double seconds) const;
  /// Returns the number of beats up to a time in seconds.
  double beats(double seconds) const;
  /// Returns the tempo in force at a tick, including a change at this tick.
  double quarters_per_minute(double tick) const;

  /// Returns the changes, sorted by tick.
  const std::vector<TempoChange>& changes() const { return changes_; }

 private:
  struct Segment {
    double tick, seconds, beats;  // at its start
    double seconds_per_tick, seconds_per_beat;
  };

  const Segment& at(double value, double Segment::*start) const;

  std::vector<TempoChange> changes_;
  std::vector<Segment> segments_;
};

}  // namespace stretto::music
