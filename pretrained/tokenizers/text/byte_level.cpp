#include "pretrained/tokenizers/text/byte_level.h"

#include <array>

#include "core/utf8.h"

namespace stretto::nn::tokenizers {
namespace {

struct Alphabet {
  struct Character {
    char bytes[2] = {};
    uint8_t size = 0;
  };
  std::array<Character, 256> characters{};
  std::array<int16_t, 0x144> bytes{};

  constexpr Alphabet() {
    bytes.fill(-1);
    uint32_t next = 0x100;
    for (uint32_t byte = 0; byte < 256; ++byte) {
      const bool printable = (byte > 0x20 && byte < 0x7F) || (byte > 0xA0 && byte != 0xAD);
      const uint32_t point = printable ? byte : next++;
      if (point < 0x80)
        characters[byte] = {{char(point)}, 1};
      else
        characters[byte] = {{char(0xC0 | point >> 6), char(0x80 | (point & 0x3F))}, 2};
      bytes[point] = int16_t(byte);
    }
  }
};

constexpr Alphabet alphabet;

}  // namespace

std::string_view byte_character(uint8_t byte) {
  return {alphabet.characters[byte].bytes, alphabet.characters[byte].size};
}

std::optional<std::string> bytes_of_characters(std::string_view text) {
  std::string bytes;
  for (size_t at = 0; at < text.size();) {
    const uint32_t point = next_code_point(text, at);
    if (point >= alphabet.bytes.size() || alphabet.bytes[point] < 0) return std::nullopt;
    bytes += char(alphabet.bytes[point]);
  }
  return bytes;
}

}  // namespace stretto::nn::tokenizers
