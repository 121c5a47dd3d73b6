// Sequential reading of the header of a binary file, in blocks.
#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "../../core/error.h"
#include "../../core/input_file.h"

namespace stretto::nn::files {

/// Reads bytes `begin` … `end` − 1 of a file in order. Throws Error, "[op] path: …", before
/// anything is allocated for bytes that the file does not have.
class ByteReader {
 public:
  ByteReader(const InputFile& file, const char* op, std::string path, int64_t begin, int64_t end)
      : file_(file), op_(op), path_(std::move(path)), at_(begin), end_(end) {}

  /// Returns the position in the file.
  int64_t position() const { return at_; }
  /// Returns the number of bytes up to the end.
  int64_t remaining() const { return end_ - at_; }

  /// Reads a little-endian value.
  template <class T>
  T get() {
    T value;
    read(&value, sizeof value);
    return value;
  }
  /// Reads a string of n bytes.
  std::string text(uint64_t n) {
    require(n);
    std::string text(n, '\0');
    read(text.data(), n);
    return text;
  }
  /// Reads up to a line feed, which is not returned.
  std::string line(size_t limit) {
    std::string text;
    for (char c = get<char>(); c != '\n'; c = get<char>()) {
      if (text.size() == limit) bad("a line of more than ", limit, " bytes at byte ", at_);
      text += c;
    }
    return text;
  }
  /// Skips n bytes.
  void skip(uint64_t n) {
    require(n);
    at_ += int64_t(n);
  }
  /// Throws unless there are n more bytes, e.g. n elements of at least one byte.
  void require(uint64_t n) const {
    if (n > uint64_t(remaining()))
      bad("truncated: ", n, " bytes at byte ", at_, ", but it ends at byte ", end_);
  }

  /// Throws an Error with the path.
  template <class... Parts>
  [[noreturn]] void bad(const Parts&... parts) const {
    fail(op_, path_, ": ", parts...);
  }

 private:
  void read(void* to, uint64_t n) {
    require(n);
    auto* into = static_cast<char*>(to);
    while (n > 0) {
      if (at_ < block_begin_ || at_ >= block_begin_ + int64_t(block_.size())) fill();
      const auto offset = size_t(at_ - block_begin_);
      const size_t count = std::min<size_t>(n, block_.size() - offset);
      std::memcpy(into, block_.data() + offset, count);
      into += count;
      at_ += int64_t(count);
      n -= count;
    }
  }
  void fill() {
    block_begin_ = at_;
    block_.resize(size_t(std::min<int64_t>(remaining(), 1 << 16)));
    file_.read(block_.data(), int64_t(block_.size()), at_);
  }

  const InputFile& file_;
  const char* op_;
  std::string path_;
  int64_t at_, end_, block_begin_ = 0;
  std::vector<char> block_;
};

}  // namespace stretto::nn::files
