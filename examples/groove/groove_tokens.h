// Grooves as token sequences: note starts, note ends and time shifts (Liutkus et al. 2021,
// "Relative Positional Encoding for Transformers with Linear Complexity", the groove continuation
// task and its published code). Velocities and instruments are not encoded.
//
//   0 … 383    note_on(track, pitch)    track: 0 bass, 1 drums, 2 harmony
//   384 … 767  note_off(track, pitch)
//   768 … 791  time_shift(beats, tick): (0, 1 … 11), (1, 0 … 11), (2, 0)
//   792        end
//   793        start
//
// time_shift(b, t) advances by b beats and then to tick t of that beat.
#pragma once

#include <cstdint>
#include <limits>
#include <vector>

#include "examples/groove/groove.h"

namespace stretto::examples {

inline constexpr int64_t groove_end = 792, groove_start = 793, groove_vocabulary = 794;

inline int64_t note_on_token(int track, int pitch) { return 128 * track + pitch; }
inline int64_t note_off_token(int track, int pitch) { return 384 + 128 * track + pitch; }
inline int64_t time_shift_token(int beats, int tick) { return 767 + 12 * beats + tick; }

/// The meaning of a token. `first` is the track or the beats, `second` the pitch or the tick.
struct GrooveEvent {
  enum class Kind { note_on, note_off, time_shift, end, start } kind;
  int first = 0, second = 0;

  /// Returns the tick to which a time shift leads from tick `time`. The result is earlier than
  /// `time` if the shift's tick within the beat has already passed.
  int64_t from(int64_t time) const { return (time / groove_beat + first) * groove_beat + second; }
};

/// Decodes a token. Throws std::invalid_argument for a token outside 0 … 793.
GrooveEvent groove_event(int64_t token);

/// Returns the tokens of a groove without start and end, at most `most` of them.
///
/// Notes are ordered by time, then pitch, duration, velocity and track; events at one tick are
/// ordered by the start of their notes. Before each event, time shifts move the clock from the
/// previous event: (2, 0) for every two beats, then (beats mod 2, tick) unless both are 0. So an
/// event off the beat is preceded by a time shift (0, its tick) even if no time has passed. The
/// published sequences contain such shifts, and the functions here that read tokens accept them.
///
/// Throws std::invalid_argument for a pitch outside 0 … 127, for negative times, and for notes that
/// do not end before tick 2^28.
std::vector<int64_t> to_tokens(const music::Song& groove,
                               int64_t most = std::numeric_limits<int64_t>::max());

/// Returns the groove encoded by tokens, up to the first end token; start tokens are ignored. Every
/// sequence is valid: a note_off ends the earliest sounding note of its track and pitch and is
/// ignored if there is none; notes without an end are lost; notes that end when they begin, or
/// before, last one tick. Velocities are 80; notes are sorted by start and pitch.
///
/// Throws std::invalid_argument for a token outside 0 … 793 and for notes that do not begin and
/// end before tick 2^28.
music::Song to_groove(const std::vector<int64_t>& tokens);

}  // namespace stretto::examples
