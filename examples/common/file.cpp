#include "examples/common/file.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <optional>
#include <stdexcept>
#include <utility>
#include <vector>

#include "core/atomic_file.h"
#include "core/available_memory.h"
#include "examples/common/error.h"

namespace stretto::examples {
namespace {

std::string cannot_read(const std::string& path, int error) {
  return "cannot read '" + path + "': " + std::strerror(error);
}

// Throws for a file that cannot be read: UsageError, after which a caller may skip the file, except
// for a temporary lack of resources, which is not the file's fault.
[[noreturn]] void refuse_to_read(const std::string& path, int error) {
  for (const int momentary : {EMFILE, ENFILE, ENOMEM, EIO, EINTR, EAGAIN})
    if (error == momentary) throw std::runtime_error(cannot_read(path, error));
  throw UsageError(cannot_read(path, error));
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
  int release() { return std::exchange(value_, -1); }
  /// Closes now and returns whether that succeeded (the reason is in errno).
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
    bytes.remove_prefix(size_t(count));
  }
}

void write_in_place(const std::string& path, std::string_view bytes) {
  Descriptor file(::open(path.c_str(), O_WRONLY | O_CLOEXEC));
  if (file.get() < 0) throw UsageError(cannot_write(path, errno));
  write_all(file.get(), bytes, path);
  if (!file.close()) throw std::runtime_error(cannot_write(path, errno));
}

/// Opens a regular file and returns its descriptor and size.
int open_regular(const std::string& path, size_t& size) {
  // O_NONBLOCK: opening a pipe would wait for its writer.
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (descriptor < 0) refuse_to_read(path, errno);
  struct stat info {};
  const int error = ::fstat(descriptor, &info) == 0 ? 0 : errno;
  size = size_t(info.st_size);
  if (error == 0 && S_ISREG(info.st_mode)) return descriptor;
  ::close(descriptor);
  if (error != 0) refuse_to_read(path, error);
  throw UsageError(S_ISDIR(info.st_mode) ? cannot_read(path, EISDIR)
                                         : "cannot read '" + path + "': it is not a regular file");
}

int64_t time_of_change(int descriptor) {
  struct stat info {};
  if (::fstat(descriptor, &info) != 0) return 0;
  return int64_t(info.st_mtim.tv_sec) * 1'000'000'000 + info.st_mtim.tv_nsec;
}

// Handles SIGBUS, which is raised when a mapped file has no data at an address that is accessed.
extern "C" void lose_pages(int) {
  constexpr std::string_view told =
      "a file that was being read has become shorter, or its disk fails\n";
  [[maybe_unused]] const ssize_t written = ::write(STDERR_FILENO, told.data(), told.size());
  ::_exit(1);
}

void tell_of_lost_pages() {
  struct sigaction action {};
  action.sa_handler = lose_pages;
  sigemptyset(&action.sa_mask);
  ::sigaction(SIGBUS, &action, nullptr);
}

}  // namespace

std::string read_whole_file(const std::string& path) {
  size_t size = 0;
  const Descriptor file(open_regular(path, size));
  constexpr size_t small = 1 << 24;
  if (size > small && size > size_t(available_memory()))
    throw UsageError("cannot read '" + path + "': its " + std::to_string(size) +
                     " bytes do not fit into the memory that is free");
  std::string bytes;
  bytes.reserve(size);
  std::vector<char> block(1 << 16);
  while (true) {
    const ssize_t count = ::read(file.get(), block.data(), block.size());
    if (count == 0) return bytes;
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) refuse_to_read(path, errno);
    bytes.append(block.data(), size_t(count));
  }
}

MappedFile::MappedFile(const std::string& path) : path_(path) {
  size_t size = 0;
  Descriptor file(open_regular(path, size));
  if (size == 0) return;
  changed_at_ = time_of_change(file.get());
  void* data = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, file.get(), 0);
  if (data == MAP_FAILED) refuse_to_read(path, errno);
  bytes_ = {static_cast<const char*>(data), size};
  descriptor_ = file.release();
  tell_of_lost_pages();
}

MappedFile::~MappedFile() {
  if (descriptor_ < 0) return;
  ::munmap(const_cast<char*>(bytes_.data()), bytes_.size());
  ::close(descriptor_);
}

void MappedFile::check_unchanged(const std::function<bool()>& same_content) const {
  if (descriptor_ < 0) return;
  const int64_t at = time_of_change(descriptor_);
  if (at == changed_at_) return;
  if (same_content()) {
    changed_at_ = at;
    return;
  }
  throw std::runtime_error(path_ +
                           ": was changed while it was being read; the last checkpoint was trained "
                           "on the text before the change");
}

void write_file_atomically(const std::string& path, std::string_view bytes) {
  struct stat existing {};
  if (::stat(path.c_str(), &existing) == 0 && !S_ISREG(existing.st_mode)) {
    if (S_ISDIR(existing.st_mode)) throw UsageError(cannot_write(path, EISDIR));
    return write_in_place(path, bytes);
  }
  const nn::DelaySignals delay;
  std::optional<AtomicFile> file;
  as_usage([&] { file.emplace(path); });
  file->write(bytes.data(), int64_t(bytes.size()));
  file->commit();
}

}  // namespace stretto::examples
