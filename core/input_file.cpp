#include "core/input_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "core/error.h"
#include "core/one_line.h"

namespace stretto {

InputFile::InputFile(const char* op, std::string path) : op_(op), path_(std::move(path)) {
  do {
    fd_ = ::open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  } while (fd_ < 0 && errno == EINTR);
  check(fd_ >= 0, op_, path_, ": cannot open: ", std::strerror(errno));
  struct stat info;
  const int failed = ::fstat(fd_, &info) != 0 ? errno : 0;
  if (failed == 0 && S_ISREG(info.st_mode)) {
    size_ = info.st_size;
    return;
  }
  ::close(fd_);
  check(failed == 0, op_, path_, ": cannot stat: ", std::strerror(failed));
  fail(op_, path_, ": is not a regular file");
}

InputFile::~InputFile() { ::close(fd_); }

void InputFile::read(void* to, int64_t bytes, int64_t at) const {
  char* into = static_cast<char*>(to);
  while (bytes > 0) {
    const ssize_t got = ::pread(fd_, into, size_t(bytes), at);
    if (got < 0 && errno == EINTR) continue;
    check(got >= 0, op_, path_, ": cannot read: ", std::strerror(errno));
    check(got > 0, op_, path_, ": the file ends before byte ", at + bytes,
          "; another program may have shortened it");
    into += got;
    at += got;
    bytes -= got;
  }
}

// Without the size, which files of /proc do not have.
std::string read_file(const std::string& path) {
  constexpr const char* op = "read_file";
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  check(fd >= 0, op, one_line(path), ": ", std::strerror(errno));
  std::string text, block(1 << 16, '\0');
  ssize_t n = 0;
  while ((n = ::read(fd, block.data(), block.size())) > 0 || (n < 0 && errno == EINTR))
    if (n > 0) text.append(block, 0, size_t(n));
  const int error = errno;
  ::close(fd);
  check(n == 0, op, one_line(path), ": ", std::strerror(error));
  return text;
}

std::string read_text(const char* op, const std::string& path, int64_t most) {
  const InputFile file(op, path);
  check(file.size() <= most, op, one_line(path), ": ", file.size(), " bytes; at most ", most,
        " allowed");
  std::string text(size_t(file.size()), '\0');
  file.read(text.data(), file.size(), 0);
  return text;
}

}  // namespace stretto
