// A checksum of bytes, to recognize damaged files and changed data.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

namespace stretto {

/// XXH64 with seed 0 (xxhash.com): 64 bits that detect accidental changes, not forgery. Bytes can
/// be added in chunks of any size.
///
///     Digest digest;
///     digest.add(text.data(), int64_t(text.size()));
///     trainer_options.metadata["data"] = digest.text();
class Digest {
 public:
  /// Starts with no bytes.
  Digest();
  ~Digest();
  Digest(const Digest&) = delete;
  Digest& operator=(const Digest&) = delete;

  /// Adds bytes.
  void add(const void* data, int64_t bytes);
  /// Adds the 8 bytes of an integer.
  void add(int64_t value) { add(&value, sizeof value); }
  /// Returns the checksum of all bytes so far.
  uint64_t value() const;
  /// Returns the checksum as 16 hexadecimal digits.
  std::string text() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace stretto
