#include "pretrained/tokenizers/text/byte_level.h"

#include <array>

#include "core/utf8.h"

namespace stretto::nn::tokenizers {
namespace {

struct Alphabet {
  std::array<std::string, 256> characters;
  std::array<int, 0x144> bytes;

  Alphabet() {
    bytes.fill(-1);
    uint32_t next = 0x100;
    for (uint32_t byte = 0; byte < 256; ++byte) {
      const bool printable = (byte > 0x20 && byte < 0x7F) || (byte > 0xA0 && byte != 0xAD);
      const uint32_t point = printable ? byte : next++;
      append_utf8(characters[byte], point);
      bytes[point] = int(byte);
    }
  }
};

const Alphabet& alphabet() {
  static const Alphabet table;
  return table;
}

}  // namespace

std::string_view byte_character(uint8_t byte) { return alphabet().characters[byte]; }

int byte_of_character(uint32_t point) {
  return point < alphabet().bytes.size() ? alphabet().bytes[point] : -1;
}

std::optional<std::string> bytes_of_characters(std::string_view text) {
  std::string bytes;
  for (size_t at = 0; at < text.size();) {
    const int byte = byte_of_character(next_code_point(text, at));
    if (byte < 0) return std::nullopt;
    bytes += char(byte);
  }
  return bytes;
}

}  // namespace stretto::nn::tokenizers
