// Whole files: reading or mapping one, and replacing one atomically.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

namespace stretto::examples {

/// Returns the bytes of the file at `path`. Throws UsageError if it cannot be opened or read, is
/// not a regular file (a folder; devices and pipes may have no end), or is larger than the free
/// memory. Throws std::runtime_error if the system cannot open another file or the disk fails.
std::string read_whole_file(const std::string& path);

/// A read-only memory mapping of a file: bytes are read when they are accessed, and their pages can
/// be reclaimed by the system. If the file is truncated meanwhile, accessing the missing part
/// prints an error and ends the process with exit code 1.
class MappedFile {
 public:
  /// Throws UsageError as read_whole_file does, except for the size.
  explicit MappedFile(const std::string& path);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  std::string_view bytes() const { return bytes_; }
  /// Throws std::runtime_error if the file was written to since it was mapped: the bytes read may
  /// mix old and new content. If only its modification time differs, `same_content` decides.
  /// Replacing the file by another of the same name is not a change.
  void check_unchanged(const std::function<bool()>& same_content = [] { return false; }) const;

 private:
  std::string path_;
  int descriptor_ = -1;
  mutable int64_t changed_at_ = 0;  // nanoseconds
  std::string_view bytes_;
};

/// Replaces the file at `path` by `bytes`: they are written to a temporary file next to it,
/// flushed to disk and renamed (core/atomic_file.h), so that readers see the old or the new
/// file as a whole. An existing device or pipe is written directly. Throws UsageError if the
/// path cannot be opened (a directory, a missing folder, no permission) and Error if writing
/// fails (disk full); the old file then stays. A signal that ends the program waits until the
/// file is complete (nn::DelaySignals).
void write_file_atomically(const std::string& path, std::string_view bytes);

}  // namespace stretto::examples
