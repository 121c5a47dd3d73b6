// A regular file, opened to read any part of it.
#pragma once

#include <cstdint>
#include <string>

namespace stretto {

/// Errors are "[OP] PATH: …" with the system's reason.
class InputFile {
 public:
  InputFile(const char* op, std::string path);
  ~InputFile();
  InputFile(const InputFile&) = delete;
  InputFile& operator=(const InputFile&) = delete;

  int64_t size() const { return size_; }
  void read(void* to, int64_t bytes, int64_t at) const;

 private:
  const char* op_;
  const std::string path_;
  int fd_ = -1;
  int64_t size_ = 0;
};

}  // namespace stretto
