// Random-access reading of a regular file.
#pragma once

#include <cstdint>
#include <string>

namespace stretto {

/// A regular file, open for reading. Errors are "[op] path: …" with the system's reason.
class InputFile {
 public:
  /// Opens the file; throws if it is missing or not a regular file.
  InputFile(const char* op, std::string path);
  ~InputFile();
  InputFile(const InputFile&) = delete;
  InputFile& operator=(const InputFile&) = delete;

  /// Returns the size in bytes when the file was opened.
  int64_t size() const { return size_; }
  /// Reads `bytes` bytes from position `at` on; throws if the file has fewer bytes there.
  void read(void* to, int64_t bytes, int64_t at) const;

 private:
  const char* op_;
  const std::string path_;
  int fd_ = -1;
  int64_t size_ = 0;
};

/// Returns the content of a file. Throws Error "[read_file] path: …" if it cannot be read.
std::string read_file(const std::string& path);
/// Returns the content of a file of at most `most` bytes. Throws Error "[op] path: …".
std::string read_text(const char* op, const std::string& path, int64_t most = 16 << 20);

}  // namespace stretto
