#include "core/atomic_file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <optional>
#include <system_error>
#include <utility>

#include "core/error.h"

namespace stretto {

namespace {

struct Descriptor {
  const int fd;
  ~Descriptor() {
    if (fd >= 0) ::close(fd);
  }
};

int open_folder(const std::string& path) {
  for (;;) {
    const int fd = ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd >= 0 || errno != EINTR) return fd;
  }
}

constexpr int most_links = 40;  // the Linux kernel's limit

// Returns the end of a chain of symbolic links, whether or not a file exists there.
std::string target_of(std::string path) {
  std::error_code error;
  for (int i = 0; i < most_links && std::filesystem::is_symlink(path, error); ++i) {
    const std::filesystem::path link = std::filesystem::read_symlink(path, error);
    if (error) break;
    path = (std::filesystem::path(path).parent_path() / link).string();
  }
  return path;
}

// True if `path` is the file that is open as `fd`.
bool names(const std::string& path, int fd) {
  struct stat named, opened;
  return ::lstat(path.c_str(), &named) == 0 && ::fstat(fd, &opened) == 0 &&
         named.st_ino == opened.st_ino && named.st_dev == opened.st_dev;
}

// Locks the file. Returns false, with errno EBUSY, if another process has locked it. Returns true
// if the file system has no locks.
bool lock(int fd) {
  if (::flock(fd, LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK) return true;
  errno = EBUSY;
  return false;
}

void close_keeping_errno(int fd) {
  const int reason = errno;
  ::close(fd);
  errno = reason;
}

// Removes an old temporary file at `path`. Only the name is removed, so that the target of a link
// or a pipe is unchanged. Returns false, with errno, if this fails or if another process is
// writing the file.
bool remove_leftover(const std::string& path) {
  struct stat info;
  if (::lstat(path.c_str(), &info) != 0) return errno == ENOENT;
  if (!S_ISREG(info.st_mode)) return ::unlink(path.c_str()) == 0 || errno == ENOENT;
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
  if (fd < 0) return errno == ENOENT;
  const bool gone = lock(fd) && (!names(path, fd) || ::unlink(path.c_str()) == 0);
  close_keeping_errno(fd);
  return gone;
}

// Creates a new file at `path` in place of an old temporary file, opens it for writing and locks
// it while it is open. Returns -1, with errno, on failure: EBUSY if another process has opened it
// in this way.
int open_temporary(const std::string& path, mode_t mode) {
  for (int attempt = 0; attempt < 100; ++attempt) {
    const int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, mode);
    if (fd >= 0) {
      const bool locked = lock(fd);
      // Before the file was locked, another process may have removed it as an old temporary file.
      if (locked && names(path, fd)) return fd;
      close_keeping_errno(fd);
      if (!locked) return -1;
    } else if (errno != EINTR && (errno != EEXIST || !remove_leftover(path))) {
      return -1;
    }
  }
  errno = EBUSY;
  return -1;
}

}  // namespace

AtomicFile::AtomicFile(std::string path) : path_(std::move(path)), target_(target_of(path_)) {
  struct stat info;
  const bool exists = ::stat(target_.c_str(), &info) == 0;
  check(!exists || S_ISREG(info.st_mode), "save", path_, ": exists and is not a regular file");
  const bool possible = exists || errno == ENOENT;
  temporary_ = target_ + ".tmp";
  if (possible) fd_ = open_temporary(temporary_, exists ? info.st_mode & 0777 : 0666);
  if (fd_ < 0) fail("save", path_, ": cannot create ", temporary_, ": ", std::strerror(errno));
}

AtomicFile::~AtomicFile() { discard(); }

void AtomicFile::discard() noexcept {
  if (fd_ < 0) return;
  ::unlink(temporary_.c_str());
  ::close(std::exchange(fd_, -1));
}

void AtomicFile::give_up(const char* what) {
  const int reason = errno;
  discard();
  fail("save", path_, ": ", what, ": ", std::strerror(reason));
}

void AtomicFile::put(const void* data, int64_t bytes, std::optional<int64_t> at) {
  check(fd_ >= 0, "save", path_, ": the file was already committed, or an earlier write failed");
  const char* from = static_cast<const char*>(data);
  while (bytes > 0) {
    const ssize_t written =
        at ? ::pwrite(fd_, from, size_t(bytes), *at) : ::write(fd_, from, size_t(bytes));
    if (written < 0 && errno == EINTR) continue;
    if (written == 0) errno = EIO;
    if (written <= 0) give_up("write failed");
    from += written;
    bytes -= written;
    if (at) *at += written;
  }
}

void AtomicFile::write(const void* data, int64_t bytes) { put(data, bytes, std::nullopt); }

void AtomicFile::rewrite(const void* data, int64_t bytes, int64_t at) { put(data, bytes, at); }

void AtomicFile::commit() {
  check(fd_ >= 0, "save", path_, ": the file was already committed, or an earlier write failed");
  int failed = 0;
  while ((failed = ::fsync(fd_)) != 0 && errno == EINTR) {
  }
  if (failed != 0) give_up("fsync failed");
  // The rename is on disk after the fsync of the directory. The directory is opened before the
  // rename, because a failure to open it can then still be undone.
  const std::string folder = std::filesystem::path(target_).parent_path().string();
  const Descriptor directory{open_folder(folder.empty() ? "." : folder)};
  if (directory.fd < 0) give_up("cannot open its directory");
  if (::rename(temporary_.c_str(), target_.c_str()) != 0) give_up("rename failed");
  ::close(std::exchange(fd_, -1));  // cannot lose data: everything is on disk
  while ((failed = ::fsync(directory.fd)) != 0 && errno == EINTR) {
  }
  if (failed != 0 && errno != EINVAL) give_up("fsync of its directory failed");  // EINVAL: no fsync
}

void write_atomically(const std::string& path, std::string_view content) {
  AtomicFile file(path);
  file.write(content.data(), int64_t(content.size()));
  file.commit();
}

}  // namespace stretto
