// A file that appears complete or not at all.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace stretto {

/// Writes to path + ".tmp"; `commit` puts that in the place of `path` in one step, once it is on
/// the disk. Without commit, or when anything fails (Error with the path and the system's reason),
/// the temporary file is removed and an older file at `path` stays as it was; only where the
/// folder's own sync fails, the last act, the new one is already there. A symbolic link is followed
/// and stays, and so do an older file's permissions. What a killed process or anyone left at
/// path + ".tmp" is removed, never written to; while another writes there, this one fails.
class AtomicFile {
 public:
  explicit AtomicFile(std::string path);
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  /// Appends.
  void write(const void* data, int64_t bytes);
  /// In the place of what was written from byte `at` on.
  void rewrite(const void* data, int64_t bytes, int64_t at);
  void commit();

 private:
  void put(const void* data, int64_t bytes, std::optional<int64_t> at);
  void discard() noexcept;
  [[noreturn]] void give_up(const char* what);

  std::string path_, target_, temporary_;
  int fd_ = -1;
};

}  // namespace stretto
