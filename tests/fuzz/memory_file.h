// A file in memory, for readers that need a path.
#pragma once

#include <sys/mman.h>
#include <sys/types.h>
#include <unistd.h>

#include <stdexcept>
#include <string>
#include <string_view>

namespace stretto::testing {

/// The path is valid in this process during the lifetime of the object.
class MemoryFile {
 public:
  MemoryFile() : descriptor_(::memfd_create("fuzz", MFD_CLOEXEC)) {
    if (descriptor_ < 0) throw std::runtime_error("memfd_create");
    path_ = "/proc/self/fd/" + std::to_string(descriptor_);
  }
  ~MemoryFile() { ::close(descriptor_); }
  MemoryFile(const MemoryFile&) = delete;
  MemoryFile& operator=(const MemoryFile&) = delete;

  const std::string& path() const { return path_; }

  void hold(std::string_view bytes) {
    const auto size = static_cast<ssize_t>(bytes.size());
    if (::ftruncate(descriptor_, 0) != 0 ||
        ::pwrite(descriptor_, bytes.data(), bytes.size(), 0) != size) {
      throw std::runtime_error("cannot write the file in memory");
    }
  }

 private:
  int descriptor_;
  std::string path_;
};

}  // namespace stretto::testing
