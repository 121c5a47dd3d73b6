#include "examples/common/file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <stdexcept>
#include <system_error>
#include <vector>

#include "examples/common/error.h"
#include "nn/atomic_file.h"

namespace stretto::examples {
namespace {

namespace fs = std::filesystem;

std::string cannot_read(const std::string& path, int error) {
  return "cannot read '" + path + "': " + std::strerror(error);
}

std::string cannot_write(const std::string& path, int error) {
  return "cannot write '" + path + "': " + std::strerror(error);
}

/// Owns a file descriptor.
class Descriptor {
 public:
  explicit Descriptor(int value) : value_(value) {}
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  ~Descriptor() {
    if (value_ >= 0) ::close(value_);
  }
  int get() const { return value_; }
  /// Closes now and returns whether that succeeded (errno says why not).
  bool close() {
    const int value = value_;
    value_ = -1;
    return ::close(value) == 0;
  }

 private:
  int value_;
};

void write_all(int descriptor, std::string_view bytes, const std::string& path) {
  while (!bytes.empty()) {
    const ssize_t count = ::write(descriptor, bytes.data(), bytes.size());
    if (count < 0) {
      if (errno == EINTR) continue;
      throw std::runtime_error(cannot_write(path, errno));
    }
    bytes.remove_prefix(static_cast<std::size_t>(count));
  }
}

void write_in_place(const std::string& path, std::string_view bytes) {
  Descriptor file(::open(path.c_str(), O_WRONLY | O_CLOEXEC));
  if (file.get() < 0) throw UsageError(cannot_write(path, errno));
  write_all(file.get(), bytes, path);
  if (!file.close()) throw std::runtime_error(cannot_write(path, errno));
}

void write_and_rename(const std::string& path, const std::string& target, mode_t mode,
                      std::string_view bytes) {
  const std::string temporary = target + ".tmp";
  Descriptor file(nn::open_temporary(temporary, mode));
  if (file.get() < 0) throw UsageError(cannot_write(path, errno));
  try {
    write_all(file.get(), bytes, path);
    if (::fsync(file.get()) != 0 || std::rename(temporary.c_str(), target.c_str()) != 0) {
      throw std::runtime_error(cannot_write(path, errno));
    }
  } catch (...) {
    ::unlink(temporary.c_str());
    throw;
  }
}

}  // namespace

std::string read_whole_file(const std::string& path) {
  const Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (file.get() < 0) throw UsageError(cannot_read(path, errno));
  std::string bytes;
  std::vector<char> block(1 << 16);
  while (true) {
    const ssize_t count = ::read(file.get(), block.data(), block.size());
    if (count == 0) return bytes;
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) throw UsageError(cannot_read(path, errno));
    bytes.append(block.data(), static_cast<std::size_t>(count));
  }
}

void write_file_atomically(const std::string& path, std::string_view bytes) {
  struct stat existing {};
  if (::stat(path.c_str(), &existing) != 0) {
    if (errno != ENOENT) throw UsageError(cannot_write(path, errno));
    write_and_rename(path, path, 0666, bytes);
  } else if (S_ISDIR(existing.st_mode)) {
    throw UsageError(cannot_write(path, EISDIR));
  } else if (!S_ISREG(existing.st_mode)) {
    write_in_place(path, bytes);
  } else {
    std::error_code ignored;
    const fs::path resolved = fs::canonical(path, ignored);
    write_and_rename(path, ignored ? path : resolved.string(), existing.st_mode & 0777, bytes);
  }
}

}  // namespace stretto::examples
