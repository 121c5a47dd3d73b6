#include "examples/common/folder_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>

#include "examples/common/settings.h"

namespace stretto::examples {
namespace {

// What the one that has the lock has written there, " 123", or nothing.
std::string owner(int descriptor) {
  char text[21] = {};
  const ssize_t count = ::pread(descriptor, text, sizeof text - 1, 0);
  int64_t process = 0;
  const std::string line(text, count > 0 ? size_t(count) : 0);
  return read_text(line.substr(0, line.find('\n')), process) && process > 0
             ? ", of process " + as_text(process) + ","
             : "";
}

void write_owner(int descriptor) {
  const std::string line = as_text(int64_t(::getpid())) + "\n";
  if (::ftruncate(descriptor, 0) != 0 || ::pwrite(descriptor, line.data(), line.size(), 0) < 0)
    return;  // nobody needs to know it
}

constexpr const char* name = ".lock";

bool same(const struct stat& a, const struct stat& b) {
  return a.st_ino == b.st_ino && a.st_dev == b.st_dev;
}

}  // namespace

FolderLock::FolderLock(const std::string& folder)
    : folder_(folder), directory_(::open(folder.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC)) {
  const std::string path = (std::filesystem::path(folder) / name).string();
  const auto refuse = [&](const std::string& told) {
    if (descriptor_ >= 0) ::close(descriptor_);
    if (directory_ >= 0) ::close(directory_);
    throw UsageError("--out: " + told);
  };
  if (directory_ < 0) refuse("cannot write " + folder + ": " + std::strerror(errno));
  for (;;) {
    constexpr int flags = O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK;
    descriptor_ = ::openat(directory_, name, flags, 0666);
    const int error = errno;
    if (descriptor_ < 0)
      refuse("cannot write " + (error == EACCES ? folder : path) + ": " + std::strerror(error));
    const bool held = ::flock(descriptor_, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK;
    struct stat mine {};
    ::fstat(descriptor_, &mine);
    const bool left_by_lock = mine.st_size == 0 || !owner(descriptor_).empty();
    if (!S_ISREG(mine.st_mode) || mine.st_nlink > 1 || !left_by_lock)
      refuse("cannot write " + path + ": it is not a file of its own");
    if (held) refuse("another run" + owner(descriptor_) + " is at work in " + folder);
    // The one before may have removed the name since it was opened.
    if (is_ours(false)) break;
    ::close(descriptor_);
  }
  write_owner(descriptor_);
}

// Whether the folder's ".lock" is the file that is locked here.
bool FolderLock::is_ours(bool if_missing) const {
  struct stat mine {
  }, named{};
  if (::fstatat(directory_, name, &named, AT_SYMLINK_NOFOLLOW) != 0)
    return if_missing && errno == ENOENT;
  return ::fstat(descriptor_, &mine) == 0 && same(mine, named);
}

bool FolderLock::held() const {
  struct stat mine {
  }, named{};
  return ::fstat(directory_, &mine) == 0 && ::stat(folder_.c_str(), &named) == 0 &&
         same(mine, named) && is_ours(true);
}

FolderLock::~FolderLock() {
  if (is_ours(false)) ::unlinkat(directory_, name, 0);
  ::close(descriptor_);
  ::close(directory_);
}

}  // namespace stretto::examples
