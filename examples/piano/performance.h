// Performance events (Oore et al. 2018; Huang et al. 2018, §4.2): piano music as note-ons,
// note-offs, velocities and steps in time of 10 ms to 1 s.
#pragma once

#include <vector>

#include "examples/piano/notes.h"

namespace stretto::examples {

/// Ids: the first of each kind.
inline constexpr int performance_on = 0;          // 128 pitches
inline constexpr int performance_off = 128;       // 128 pitches
inline constexpr int performance_shift = 256;     // 100: 10 ms, 20 ms, … 1 s
inline constexpr int performance_velocity = 356;  // 32: 1 to 4, 5 to 8, … 125 to 127
inline constexpr int performance_end = 388;
inline constexpr int performance_pad = 389;
inline constexpr int performance_size = 390;

/// The notes of `file` (check_piano_file) on a grid of 10 ms, the first one at 0, none shorter than
/// 10 ms, drums left out; a velocity is the second of its four. With `pedal` a note lasts while the
/// sustain pedal (controller 64) of its channel is down, at most until a minute after the end of
/// the last note; without, the pedal is ignored.
std::vector<PianoNote> performed(const MidiFile& file, bool pedal = false);

/// The events of notes as performed() leaves them, in the order of time, note-offs first, then
/// from the lowest pitch up; a velocity stands before a note that has another than the one before.
/// Ends with performance_end.
std::vector<int> performance_tokens(const std::vector<PianoNote>& notes);

/// The notes that events in any order stand for, up to the first end. A note-on ends a note of its
/// pitch that sounds, a note-off without one is passed over, and so are numbers that are no events;
/// what sounds at the end ends there; velocity 62 holds until another is set.
std::vector<PianoNote> performance_notes(const std::vector<int>& tokens);

/// The same events `factor` times as long, each moved to its own nearest 10 ms.
std::vector<int> stretched(const std::vector<int>& tokens, double factor);

/// To write as MIDI, in ticks of 1 ms.
Song to_song(const std::vector<PianoNote>& notes);

}  // namespace stretto::examples
