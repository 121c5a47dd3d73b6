// A name for data, to tell them from others.
#pragma once

#include <charconv>
#include <cstdint>
#include <string>

namespace stretto::examples {

/// FNV-1a over numbers, in hexadecimal.
class Fingerprint {
 public:
  void add(int64_t number) { hash_ = (hash_ ^ uint64_t(number)) * 0x100000001b3; }
  std::string text() const {
    char text[16];
    return {text, std::to_chars(text, text + sizeof text, hash_, 16).ptr};
  }

 private:
  uint64_t hash_ = 0xcbf29ce484222325;
};

}  // namespace stretto::examples
