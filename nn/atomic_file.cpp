#include "nn/atomic_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>

#include "core/error.h"

namespace stretto::nn {

AtomicFile::AtomicFile(std::string path) : path_(std::move(path)) {
  struct stat info;
  check(::stat(path_.c_str(), &info) != 0 || S_ISREG(info.st_mode), "save", path_,
        ": exists and is not a regular file");
  temporary_ = path_ + ".tmp." + std::to_string(::getpid());
  fd_ = ::open(temporary_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0666);
  if (fd_ < 0) fail("save", path_, ": cannot create ", temporary_, ": ", std::strerror(errno));
}

AtomicFile::~AtomicFile() {
  if (fd_ < 0) return;
  ::close(fd_);
  ::unlink(temporary_.c_str());
}

void AtomicFile::fail_with_errno(const char* what) {
  fail("save", path_, ": ", what, ": ", std::strerror(errno));
}

void AtomicFile::write(const void* data, int64_t bytes) {
  check(fd_ >= 0, "save", path_, ": already committed");
  const char* from = static_cast<const char*>(data);
  while (bytes > 0) {
    const ssize_t written = ::write(fd_, from, size_t(bytes));
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) fail_with_errno("write failed");
    from += written;
    bytes -= written;
  }
}

void AtomicFile::commit() {
  check(fd_ >= 0, "save", path_, ": already committed");
  if (::fsync(fd_) != 0) fail_with_errno("fsync failed");
  if (::rename(temporary_.c_str(), path_.c_str()) != 0) fail_with_errno("rename failed");
  const int file = fd_;
  fd_ = -1;
  if (::close(file) != 0) fail_with_errno("close failed");

  // The rename itself reaches the disk with the directory. Some file systems cannot sync one.
  std::string folder = std::filesystem::path(path_).parent_path().string();
  const int directory = ::open(folder.empty() ? "." : folder.c_str(), O_RDONLY | O_DIRECTORY);
  if (directory < 0) fail_with_errno("cannot open its directory");
  const bool synced = ::fsync(directory) == 0 || errno == EINVAL;
  const int reason = errno;
  ::close(directory);
  errno = reason;
  if (!synced) fail_with_errno("fsync of its directory failed");
}

}  // namespace stretto::nn
