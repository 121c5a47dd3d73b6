// A file that appears complete or not at all.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>

namespace stretto::nn {

/// Writes to path + ".tmp"; `commit` puts that in the place of `path` in one step, once it is on
/// the disk. Without commit, or when anything fails (Error with the path and the system's reason),
/// the temporary file is removed and an older file at `path` stays as it was. What a killed process
/// left at path + ".tmp" is overwritten; while another writes there, this one fails.
class AtomicFile {
 public:
  explicit AtomicFile(std::string path);
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  void write(const void* data, int64_t bytes);
  void commit();

 private:
  [[noreturn]] void fail_with_errno(const char* what);

  std::string path_, temporary_;
  int fd_ = -1;
};

/// Opens `path` to write to from its beginning, and locks it as long as it is open. Returns the
/// file descriptor, or -1 with errno: EBUSY while another has it open this way.
int open_temporary(const std::string& path, mode_t mode);

}  // namespace stretto::nn
