// Reads the directory of a zip archive (PKWARE APPNOTE 6.3), also zip64. Entries that are read must
// be stored without compression, as torch.save() and numpy.savez() write them.
#pragma once

#include <string>
#include <unordered_map>
#include <vector>

#include "../../../core/input_file.h"

namespace stretto::nn::files {

/// An archive. No two entries have the same name or overlap, so that the entries together have at
/// most the size of the file. Nothing is ever written, so paths in names have no effect.
class ZipArchive {
 public:
  /// Reads the directory. Throws Error, "[op] path: …", if anything is invalid.
  ZipArchive(const InputFile& file, const char* op, std::string path);

  /// An entry of the directory.
  struct Entry {
    std::string name;
    int64_t header = 0;   // position of its local header
    int64_t end = 0;      // position of the next entry's header, or of the directory
    int64_t size = 0;     // bytes of the data
    uint16_t method = 0;  // 0: stored
    bool encrypted = false;
  };
  /// Returns all entries in the order of their positions.
  const std::vector<Entry>& entries() const { return entries_; }
  /// Returns the entry of this name; null if there is none.
  const Entry* find(const std::string& name) const;
  /// Returns the position of an entry's data. Throws Error if the entry is compressed or encrypted,
  /// or if its data do not end before the next entry.
  int64_t data_position(const Entry& entry) const;

 private:
  struct Directory {
    int64_t position = 0, bytes = 0, entries = 0;
  };
  Directory find_directory() const;
  void read_directory(const Directory& directory);
  void check_places(int64_t directory);
  template <class... Parts>
  [[noreturn]] void bad(const Parts&... parts) const;

  const InputFile& file_;
  const char* op_;
  std::string path_;
  std::vector<Entry> entries_;
  std::unordered_map<std::string, size_t> by_name_;
};

}  // namespace stretto::nn::files
