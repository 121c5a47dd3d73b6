// Grooves from MIDI files.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "examples/groove/groove.h"
#include "examples/midi/midi_folder.h"
#include "music/midi_reader.h"

namespace stretto::examples {

/// Returns the instruments of a file. Each consists of the notes of one channel in one track
/// with one program, so a program change begins another instrument (as in pretty_midi). Channel
/// 9 of all tracks, with any program, is the drums. An instrument is a bass if it has a bass
/// program (32 to 39), or if its track's name contains "bass" and not "bassoon"; the one with
/// the most notes becomes the bass, and the others are ignored. All other instruments are
/// candidates for the harmony.
///
/// Starts and ends are rounded to the nearest twelfth of a beat, whatever the tempo and also with a
/// SMPTE division; a note lasts at least one twelfth. The tempo is the one in force at tick 0
/// (TempoMap; 120 before the first change), clamped to 4 … 1000 beats per minute.
///
/// Throws UsageError, without a path, for files of format 2 with no track or with several, which do
/// not sound together, and for notes that do not end before tick 2^28 of the grid.
music::Song to_song(const music::MidiFile& file);

/// Returns the song in the file at `path`, which may lack instruments. Throws UsageError, with the
/// path, as read_midi_file() and to_song() do, and for a file without notes. Defects of
/// the file are added to `damaged`, if given.
music::Song read_groove(const std::string& path, MidiDefects* damaged = nullptr);

/// Returns "no bass", "no drums" or "no harmony", the first that applies; "" for a song
/// that has all three.
std::string missing_part(const music::Song& song);

struct GrooveFolder {
  std::vector<music::Song> songs;          ///< with all three parts
  std::map<std::string, int64_t> skipped;  ///< number of files by reason: see reasons()
  MidiDefects damaged;                     ///< defects of the files of `songs`
  std::string locked;                      ///< see MidiFiles::locked_text

  /// Returns "has no notes: 2, no bass: 3, unreadable: 1; 1 folder may not be searched: a".
  std::string reasons() const;
};

/// Reads all MIDI files below a folder (midi_files), in the order of their paths, and removes the
/// first `skip_bars` bars of each. Throws UsageError if the folder cannot be read.
GrooveFolder read_groove_folder(const std::string& path, int skip_bars = 0);

}  // namespace stretto::examples
