// The MIDI files of a folder.
#pragma once

#include <cstdint>
#include <string>
#include <system_error>
#include <vector>

namespace stretto::examples {

/// What a search of a folder finds: paths from the folder on, with slashes, sorted.
struct MidiFiles {
  std::vector<std::string> names;   // of the MIDI files
  std::vector<std::string> locked;  // of the folders that the user may not search

  /// "2 folders may not be searched: a, b/c"; only the first three are named. "" for none.
  std::string locked_text() const;
};

/// Returns the files below a folder whose names end with .mid or .midi, in capitals or not.
/// Symbolic links are followed, to folders too. Each folder is searched once, under its own path if
/// that lies below `folder`, whatever links lead to it; folders above `folder` are not searched.
/// `error` is set if the folder itself cannot be searched, or one below it for another reason than
/// missing permission.
MidiFiles midi_files(const std::string& folder, std::error_code& error);

/// The files that were read over defects, such as ones that are cut off.
class MidiDefects {
 public:
  /// Notes a file that has warnings (MidiFile).
  void add(const std::string& name, const std::vector<std::string>& warnings);
  int64_t files() const { return files_; }
  /// "3 files are damaged and were read as far as they go: a.mid (byte 14: …), b.mid, c.mid"; of
  /// more than three the first ones. "" for none.
  std::string text() const;

 private:
  int64_t files_ = 0;
  std::string names_;
};

}  // namespace stretto::examples
