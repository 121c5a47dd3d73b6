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

}  // namespace

FolderLock::FolderLock(const std::string& folder)
    : path_((std::filesystem::path(folder) / ".lock").string()) {
  const auto refuse = [&](const std::string& told) {
    if (descriptor_ >= 0) ::close(descriptor_);
    throw UsageError("--out: " + told);
  };
  for (;;) {
    constexpr int flags = O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK;
    descriptor_ = ::open(path_.c_str(), flags, 0666);
    const int error = errno;
    if (descriptor_ < 0)
      refuse("cannot write " + (error == EACCES ? folder : path_) + ": " + std::strerror(error));
    const bool held = ::flock(descriptor_, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK;
    struct stat mine {
    }, named{};
    ::fstat(descriptor_, &mine);
    if (!S_ISREG(mine.st_mode) || mine.st_nlink > 1)
      refuse("cannot write " + path_ + ": it is not a file of its own");
    if (held) refuse("another run" + owner(descriptor_) + " is at work in " + folder);
    // The one before may have removed the name since it was opened.
    if (::stat(path_.c_str(), &named) == 0 && named.st_ino == mine.st_ino &&
        named.st_dev == mine.st_dev)
      break;
    ::close(descriptor_);
  }
  write_owner(descriptor_);
}

FolderLock::~FolderLock() {
  ::unlink(path_.c_str());
  ::close(descriptor_);
}

}  // namespace stretto::examples
