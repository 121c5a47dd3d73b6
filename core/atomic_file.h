// Atomic writing of a file: it appears complete or not at all.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace stretto {

/// Writes to path + ".tmp"; commit() flushes that file to disk and renames it to `path`. Without
/// commit, or on a failure (an Error with the path and the system's reason), the temporary file is
/// removed and an older file at `path` is unchanged. Exception: if only the last step fails, the
/// fsync of the directory, the new file is already in place. Symbolic links are followed and
/// preserved; the permissions of an older file are preserved. A leftover at path + ".tmp" is
/// removed, never written to; if another process is writing there, the constructor throws.
class AtomicFile {
 public:
  /// Creates the temporary file.
  explicit AtomicFile(std::string path);
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  /// Appends `bytes` bytes.
  void write(const void* data, int64_t bytes);
  /// Overwrites bytes that were written, from byte `at` on.
  void rewrite(const void* data, int64_t bytes, int64_t at);
  /// Puts the file at `path`. Nothing can be written afterwards.
  void commit();

 private:
  void put(const void* data, int64_t bytes, std::optional<int64_t> at);
  void discard() noexcept;
  [[noreturn]] void give_up(const char* what);

  std::string path_, target_, temporary_;
  int fd_ = -1;
};

}  // namespace stretto
