// Atomic writing of a file: it appears complete or not at all.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace stretto {

/// Writes to a temporary file, path + ".tmp". commit() flushes it to disk and renames it to `path`.
/// Without commit(), or after a failure (an Error with the path and the system's reason), the
/// temporary file is removed and an older file at `path` is unchanged. One case is different: if
/// only the last step, the fsync of the directory, fails, commit() throws although the new file is
/// already at `path`. If `path` is a symbolic link, the link stays, and the file that it points to
/// is replaced (the temporary file is next to that file). The permissions of an older file are
/// preserved. An old temporary file is removed, never written to. The constructor throws if another
/// process is writing the temporary file.
class AtomicFile {
 public:
  /// Creates the temporary file.
  explicit AtomicFile(std::string path);
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  /// Appends `bytes` bytes.
  void write(const void* data, int64_t bytes);
  /// Overwrites bytes that were already written, starting at byte `at` of the file.
  void rewrite(const void* data, int64_t bytes, int64_t at);
  /// Flushes the temporary file and renames it to `path`. Nothing can be written afterwards.
  void commit();

 private:
  void put(const void* data, int64_t bytes, std::optional<int64_t> at);
  void discard() noexcept;
  [[noreturn]] void give_up(const char* what);

  std::string path_, target_, temporary_;
  int fd_ = -1;
};

/// Writes a whole file, atomically.
void write_atomically(const std::string& path, std::string_view content);

}  // namespace stretto
