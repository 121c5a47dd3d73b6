// Grooves: short accompaniments in three tracks on a grid of twelfths of a beat, track 0 bass,
// 1 drums and 2 harmony. Songs have any number of instruments from track 2 on that could play the
// harmony; some of them may have no notes.
#pragma once

#include <array>
#include <cstddef>
#include <string>
#include <vector>

#include "music/midi_writer.h"

namespace stretto::examples {

inline constexpr int groove_beat = 12, groove_bar = 48;  // ticks; a bar has four beats
inline constexpr size_t bass_track = 0, drum_track = 1, harmony_track = 2;
inline constexpr std::array<const char*, 3> groove_track_names = {"bass", "drums", "harmony"};

/// Returns a groove without notes, with an electric bass (General MIDI 33) and a piano.
music::Song empty_groove();

/// Returns the groove with the harmony of track harmony_track + `index` only; if the song has no
/// harmony, that of the groove has no notes.
music::Song with_harmony(const music::Song& song, size_t index);
/// Returns the groove with the harmony that has the most notes; of several such tracks the first.
music::Song with_fullest_harmony(const music::Song& song);

/// Returns the tick at which the last note ends; 0 without notes.
int end_of(const music::Song& song);
/// Returns the number of bars up to and including the last bar with notes.
int bars_of(const music::Song& song);
/// Returns the notes that end before bar `bars`, counted from 0.
music::Song first_bars(music::Song song, int bars);
/// Returns the song from bar `bars` on, without notes that begin earlier.
music::Song without_bars(music::Song song, int bars);

}  // namespace stretto::examples
