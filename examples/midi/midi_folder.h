// Finds the MIDI files of a folder, and reads them.
#pragma once

#include <cstdint>
#include <string>
#include <system_error>
#include <vector>

#include "music/midi_file.h"

namespace stretto::examples {

/// The result of searching a folder: paths relative to it, with slashes, sorted.
struct MidiFiles {
  std::vector<std::string> names;   ///< the MIDI files
  std::vector<std::string> locked;  ///< the folders that the user may not search

  /// Returns "2 folders may not be searched: a, b/c", naming the first three; "" if there are none.
  std::string locked_text() const;
};

/// Returns the files below a folder whose names end in .mid, .midi, .kar, .rmi or .smf, ignoring
/// case. Symbolic links are followed, to folders, too. Each folder is searched once, under its own
/// path if that is below `folder`, whatever links lead to it; folders above it are not searched.
/// `error` is set if the folder itself cannot be searched, or if a folder below it cannot be
/// searched for a reason other than missing permission.
MidiFiles midi_files(const std::string& folder, std::error_code& error);

/// Reads the file at `path` (music::read_midi). Throws UsageError "PATH: byte OFFSET: REASON" for a
/// file that is not MIDI, and as read_whole_file() does.
music::MidiFile read_midi_file(const std::string& path);

/// The files that were read despite defects, such as truncation.
class MidiDefects {
 public:
  /// Adds a file that has warnings (MidiFile); one without warnings is ignored.
  void add(const std::string& name, const std::vector<std::string>& warnings);
  int64_t files() const { return files_; }
  /// Returns "3 files are damaged and were read as far as possible: a.mid (byte 14: …), b.mid,
  /// c.mid", naming the first three; "" if there are none.
  std::string text() const;

 private:
  int64_t files_ = 0;
  std::string names_;
};

}  // namespace stretto::examples
