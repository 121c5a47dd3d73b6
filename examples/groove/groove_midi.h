// Grooves from MIDI files.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "examples/groove/groove.h"
#include "examples/midi/midi_folder.h"
#include "examples/midi/midi_reader.h"

namespace stretto::examples {

/// Returns the instruments of a file: each is the notes of one channel in one track with one
/// program, so a program change begins another (as in pretty_midi). Channel 9 of all tracks, with
/// any program, is the drums. An instrument with a bass program (32 to 39), or in a track that has
/// "bass" in its name and not "bassoon", is a bass: the one with most notes is the bass, and others
/// are left out. All else could be the harmony.
///
/// Starts and ends go to the nearest twelfth of a beat, whatever the tempo, with a SMPTE division
/// too; a note lasts at least one. The tempo is the one in force at tick 0 (TempoMap), which is 120
/// before the first change, clamped to 4 … 1000 beats a minute.
///
/// Throws UsageError, without a path, for files of format 2 with several tracks, which do not sound
/// together, or with none, and for notes that do not end before tick 2^28 of the grid.
GrooveSource to_groove_source(const MidiFile& file);

/// The song in the file at `path`, which may lack instruments. Throws UsageError, with the path, as
/// read_midi() and to_groove_source() do and for a file without notes. Its defects, where it has
/// some, are added to `damaged`, if given.
GrooveSource read_groove(const std::string& path, MidiDefects* damaged = nullptr);

/// "no bass", "no drums", "no harmony", whichever comes first; "" for a song that has all three.
std::string missing_part(const GrooveSource& song);

struct GrooveFolder {
  std::vector<GrooveSource> songs;         // with all three; their names are the files' paths
  std::map<std::string, int64_t> skipped;  // a missing part or "unreadable": how many files
  MidiDefects damaged;                     // in the files that hold songs
  std::string locked;                      // MidiFiles::locked_text

  /// "no bass 3, unreadable 1; 1 folder may not be searched: a"
  std::string reasons() const;
};

/// Reads all MIDI files below a folder (midi_files), in the order of their paths, each without its
/// first `skip_bars` bars. Throws UsageError if the folder cannot be read.
GrooveFolder read_groove_folder(const std::string& path, int skip_bars = 0);

}  // namespace stretto::examples
