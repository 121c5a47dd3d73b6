#include "core/utf8.h"

#include <cstring>

namespace stretto {
namespace {

// The bounds of the second byte by the first one (Unicode, table 3-7); the size is 0 for a byte
// that starts no code point.
struct Lead {
  size_t size;
  uint8_t low, high;
};

Lead lead_of(uint8_t byte) {
  if (byte < 0x80) return {1, 0, 0};
  if (byte < 0xC2 || byte > 0xF4) return {0, 0, 0};
  if (byte < 0xE0) return {2, 0x80, 0xBF};
  if (byte < 0xF0)
    return {3, uint8_t(byte == 0xE0 ? 0xA0 : 0x80), uint8_t(byte == 0xED ? 0x9F : 0xBF)};
  return {4, uint8_t(byte == 0xF0 ? 0x90 : 0x80), uint8_t(byte == 0xF4 ? 0x8F : 0xBF)};
}

bool is_ascii(const char* at) {
  uint64_t eight;
  std::memcpy(&eight, at, 8);
  return (eight & 0x8080808080808080U) == 0;
}

}  // namespace

InvalidUtf8 find_invalid_utf8(std::string_view text, size_t from) {
  size_t at = from;
  while (at < text.size()) {
    if (at + 8 <= text.size() && is_ascii(text.data() + at)) {
      at += 8;
      continue;
    }
    const Lead lead = lead_of(uint8_t(text[at]));
    if (lead.size == 0) return {at, 1, false};
    size_t n = 1;
    for (; n < lead.size && at + n < text.size(); ++n) {
      const auto byte = uint8_t(text[at + n]);
      const uint8_t low = n == 1 ? lead.low : 0x80, high = n == 1 ? lead.high : 0xBF;
      if (byte < low || byte > high) return {at, n, false};
    }
    if (n < lead.size) return {at, n, true};
    at += n;
  }
  return {text.size(), 0, false};
}

void append_repaired(std::string& to, std::string_view text) {
  for (size_t at = 0;;) {
    const InvalidUtf8 bad = find_invalid_utf8(text, at);
    to.append(text, at, bad.at - at);
    if (bad.at == text.size()) return;
    to += "\xEF\xBF\xBD";
    at = bad.at + bad.size;
  }
}

std::string_view repaired_utf8(std::string_view text, std::string& storage) {
  if (find_invalid_utf8(text).at == text.size()) return text;
  storage.clear();
  append_repaired(storage, text);
  return storage;
}

}  // namespace stretto
