// Whole files: reading or mapping one, and writing one so that readers see the old or the new one,
// never half.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace stretto::examples {

/// The bytes of the file at `path`. Throws UsageError where it cannot be opened or read, is no
/// regular file (a folder, a device or a pipe may have no end), or is larger than the memory.
/// Throws std::runtime_error where the machine has no room for another open file, or its disk
/// fails.
std::string read_whole_file(const std::string& path);

/// The bytes of a file without a copy: they are read when they are looked at, and take no memory
/// that the system could not have back. A process that looks at what is no longer there, because
/// the file was cut meanwhile, ends with a line and exit code 1.
class MappedFile {
 public:
  /// Throws UsageError as read_whole_file does, but for size.
  explicit MappedFile(const std::string& path);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  std::string_view bytes() const { return bytes_; }
  /// Throws std::runtime_error if the file was written to, or its time of change was set, since it
  /// was mapped: what was read of it may be of two contents. One that took its name is not it.
  void check_unchanged() const;

 private:
  std::string path_;
  int descriptor_ = -1;
  int64_t changed_at_ = 0;  // nanoseconds
  std::string_view bytes_;
};

/// Replaces the file at `path` by `bytes`: they go to a temporary file beside it, reach the disk
/// and take its name (core/atomic_file.h). An existing device or pipe is written directly.
/// Throws UsageError where the path cannot be opened (a directory, a missing folder, no
/// permission) and Error where writing fails (disk full); the old file then stays. A signal that
/// ends the program waits for it (interrupt.h).
void write_file_atomically(const std::string& path, std::string_view bytes);

}  // namespace stretto::examples
