// UTF-8: code points of valid text, and the repair of invalid text.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace stretto {

/// Returns the number of bytes of a code point in valid UTF-8 from its first byte.
inline size_t utf8_size(char first) {
  const auto byte = uint8_t(first);
  return byte < 0x80 ? 1 : byte < 0xE0 ? 2 : byte < 0xF0 ? 3 : 4;
}

/// Returns the code point of valid UTF-8 at byte `at`, and moves `at` behind it.
inline uint32_t next_code_point(std::string_view text, size_t& at) {
  const auto byte = [&](size_t i) { return uint32_t(uint8_t(text[at + i])); };
  const uint32_t first = byte(0);
  if (first < 0x80) {
    ++at;
    return first;
  }
  uint32_t point = 0;
  if (first < 0xE0) {
    point = (first & 0x1F) << 6 | (byte(1) & 0x3F);
    at += 2;
  } else if (first < 0xF0) {
    point = (first & 0x0F) << 12 | (byte(1) & 0x3F) << 6 | (byte(2) & 0x3F);
    at += 3;
  } else {
    point =
        (first & 0x07) << 18 | (byte(1) & 0x3F) << 12 | (byte(2) & 0x3F) << 6 | (byte(3) & 0x3F);
    at += 4;
  }
  return point;
}

/// Returns the byte at which the code point starts that ends before byte `end` > 0 of valid UTF-8.
inline size_t previous_start(std::string_view text, size_t end) {
  --end;
  while (end > 0 && (uint8_t(text[end]) & 0xC0) == 0x80) --end;
  return end;
}

/// Appends a code point as UTF-8.
inline void append_utf8(std::string& to, uint32_t point) {
  if (point < 0x80) {
    to += char(point);
    return;
  }
  if (point < 0x800) {
    to += char(0xC0 | point >> 6);
  } else {
    if (point < 0x10000) {
      to += char(0xE0 | point >> 12);
    } else {
      to += char(0xF0 | point >> 18);
      to += char(0x80 | (point >> 12 & 0x3F));
    }
    to += char(0x80 | (point >> 6 & 0x3F));
  }
  to += char(0x80 | (point & 0x3F));
}

/// The first ill-formed sequence of a text.
struct InvalidUtf8 {
  size_t at;        ///< The byte where it starts; the size of the text if all of it is valid.
  size_t size;      ///< Its number of bytes: a maximal prefix of a code point, at least one byte.
  bool incomplete;  ///< True if the text ends within it: more bytes could make it valid.
};

/// Returns the first ill-formed sequence at or after byte `from`.
InvalidUtf8 find_invalid_utf8(std::string_view text, size_t from = 0);

/// Appends `text` with U+FFFD in place of each ill-formed sequence, as Python's errors="replace".
void append_repaired(std::string& to, std::string_view text);

/// Returns `text` if it is valid; otherwise `storage`, which receives the repaired text.
std::string_view repaired_utf8(std::string_view text, std::string& storage);

}  // namespace stretto
