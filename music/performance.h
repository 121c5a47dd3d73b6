// Performance events (Oore et al. 2018; Huang et al. 2018, §4.2): piano music as note-ons,
// note-offs, velocities and time shifts of 10 ms to 1 s.
#pragma once

#include <vector>

#include "midi_file.h"
#include "piano_notes.h"

namespace stretto::music {

/// The first id of each kind of event.
/// @{
inline constexpr int64_t performance_on = 0;          ///< 128 pitches
inline constexpr int64_t performance_off = 128;       ///< 128 pitches
inline constexpr int64_t performance_shift = 256;     ///< 100: 10 ms, 20 ms, … 1 s
inline constexpr int64_t performance_velocity = 356;  ///< 32: 1 to 4, 5 to 8, … 125 to 127
inline constexpr int64_t performance_end = 388;
inline constexpr int64_t performance_pad = 389;
inline constexpr int64_t performance_size = 390;
/// @}

/// Returns the notes of `file` (Tokenizer::check_file) without drums on a grid of 10 ms. The first
/// note is at 0, and no note is shorter than 10 ms. Velocities are quantized to the second of each
/// group of four. With `pedal` a note lasts while the sustain pedal (controller 64) or hold 2 (69)
/// of its channel is down, or the sostenuto pedal (66) if that was pressed while the key was down;
/// at most until all sound off (120) or a minute after the end of the last note. Reset of all
/// controllers (121) releases the pedals. Otherwise pedals are ignored.
std::vector<PianoNote> performed(const MidiFile& file, bool pedal = false);

/// Returns the events of notes as returned by performed(), ordered by time; at one time note-offs
/// come first, and lower pitches before higher ones. A velocity event precedes a note whose
/// velocity differs from the previous one. Ends with performance_end.
std::vector<int64_t> performance_tokens(const std::vector<PianoNote>& notes);

/// Returns the notes encoded by events in any order, up to the first end. A note-on ends a
/// sounding note of its pitch; a note-off without a sounding note and invalid ids are ignored.
/// Notes that still sound after the last event end there; events after 55 hours are ignored. The
/// velocity is 62 until a velocity event.
std::vector<PianoNote> performance_notes(const std::vector<int64_t>& tokens);

/// Returns the same events at `factor` times the duration, each rounded to the nearest 10 ms.
/// Throws Error unless 0 < factor ≤ 100.
std::vector<int64_t> stretched(const std::vector<int64_t>& tokens, double factor);

/// Returns the notes as MIDI, in ticks of 1 ms.
Song to_song(const std::vector<PianoNote>& notes);

}  // namespace stretto::music
