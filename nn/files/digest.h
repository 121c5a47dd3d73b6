// A digest of bytes that tells whether a file is still what was written.
#pragma once

#include <cstdint>
#include <string>

namespace stretto::nn {

/// XXH64 with seed 0 (xxhash.com): 64 bits, about as fast as memory. Against accidents, not against
/// forgers. The bytes may come in any pieces.
class Digest {
 public:
  void add(const void* data, int64_t bytes);
  uint64_t value() const;
  /// 16 hexadecimal digits.
  std::string text() const;

 private:
  void blocks(const unsigned char* from, int64_t count);

  static constexpr uint64_t prime1 = 0x9E3779B185EBCA87, prime2 = 0xC2B2AE3D27D4EB4F,
                            prime3 = 0x165667B19E3779F9, prime4 = 0x85EBCA77C2B2AE63,
                            prime5 = 0x27D4EB2F165667C5;
  uint64_t lanes_[4] = {prime1 + prime2, prime2, 0, 0 - prime1};
  unsigned char rest_[32] = {};  // of the last block, length_ % 32 bytes
  uint64_t length_ = 0;
};

}  // namespace stretto::nn
