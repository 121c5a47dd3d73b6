// The MIDI files of a folder.
#pragma once

#include <cstdint>
#include <string>
#include <system_error>
#include <vector>

namespace stretto::examples {

/// The files below a folder whose names end with .mid or .midi, in capitals or not: their paths
/// from the folder on, with slashes, sorted. `error` says why the folder cannot be searched.
std::vector<std::string> midi_files(const std::string& folder, std::error_code& error);

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
