#include "nn/atomic_file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>

#include "core/error.h"

namespace stretto::nn {

int open_temporary(const std::string& path, mode_t mode) {
  for (;;) {
    const int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW, mode);
    if (fd < 0) return -1;
    // Not every file system has locks. The name may have gone to another file before this lock.
    const bool busy = ::flock(fd, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK;
    struct stat mine, named;
    const bool current = ::fstat(fd, &mine) == 0 && ::stat(path.c_str(), &named) == 0 &&
                         mine.st_ino == named.st_ino && mine.st_dev == named.st_dev;
    if (current && !busy && ::ftruncate(fd, 0) == 0) return fd;
    const int reason = busy ? EBUSY : errno;
    ::close(fd);
    errno = reason;
    if (current) return -1;
  }
}

AtomicFile::AtomicFile(std::string path) : path_(std::move(path)) {
  struct stat info;
  check(::stat(path_.c_str(), &info) != 0 || S_ISREG(info.st_mode), "save", path_,
        ": exists and is not a regular file");
  temporary_ = path_ + ".tmp";
  fd_ = open_temporary(temporary_, 0666);
  if (fd_ < 0) fail("save", path_, ": cannot create ", temporary_, ": ", std::strerror(errno));
}

AtomicFile::~AtomicFile() {
  if (fd_ < 0) return;
  ::unlink(temporary_.c_str());
  ::close(fd_);
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
