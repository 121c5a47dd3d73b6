#include "pretrained/tokenizers/text/charsmap.h"

#include <cstring>

#include "core/error.h"
#include "core/utf8.h"
#include "pretrained/tokenizers/text/op.h"

namespace stretto::nn::tokenizers {
namespace {

constexpr std::string_view base64_digits =
    "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

// A unit of Darts: https://github.com/s-yata/darts-clone
bool has_leaf(uint32_t unit) { return (unit >> 8 & 1) != 0; }
uint32_t label(uint32_t unit) { return unit & (1U << 31 | 0xFF); }
uint32_t offset(uint32_t unit) { return unit >> 10 << ((unit & 1U << 9) >> 6); }

}  // namespace

Charsmap::Charsmap(std::string_view data, const std::string& name) {
  uint32_t size = 0;
  check(data.size() >= 4, op, name, ": the precompiled charsmap has ", data.size(), " bytes");
  std::memcpy(&size, data.data(), 4);
  check(size % 4 == 0 && size > 0 && size <= data.size() - 4, op, name,
        ": the precompiled charsmap has ", data.size(), " bytes, but its trie ", size);
  units_.resize(size / 4);
  std::memcpy(units_.data(), data.data() + 4, size);
  replacements_ = data.substr(4 + size);
  check(find_invalid_utf8(replacements_).at == replacements_.size(), op, name,
        ": the precompiled charsmap has replacements that are not UTF-8");
}

Charsmap::Match Charsmap::find(std::string_view text, bool shortest) const {
  Match match;
  if (units_.empty()) return match;
  size_t at = offset(units_[0]);
  for (size_t i = 0; i < text.size(); ++i) {
    const auto byte = uint8_t(text[i]);
    at ^= byte;
    if (byte == 0 || at >= units_.size() || label(units_[at]) != byte) break;
    const uint32_t unit = units_[at];
    at ^= offset(unit);
    if (!has_leaf(unit)) continue;
    if (at >= units_.size()) break;
    const size_t begin = units_[at] & ~(1U << 31);
    if (begin > replacements_.size()) break;
    // A damaged file could cut a character.
    const auto is_inside = [](std::string_view of, size_t i_of) {
      return i_of < of.size() && (uint8_t(of[i_of]) & 0xC0) == 0x80;
    };
    if (is_inside(text, i + 1) || is_inside(replacements_, begin)) continue;
    const std::string_view rest = std::string_view(replacements_).substr(begin);
    match = {i + 1, rest.substr(0, rest.find('\0'))};
    if (shortest) break;
  }
  return match;
}

std::optional<std::string> from_base64(std::string_view text) {
  std::string bytes;
  uint32_t bits = 0;
  int n = 0;
  while (text.ends_with('=')) text.remove_suffix(1);
  for (const char c : text) {
    const size_t digit = base64_digits.find(c);
    if (digit == std::string_view::npos) return std::nullopt;
    bits = bits << 6 | uint32_t(digit);
    if ((n += 6) < 8) continue;
    n -= 8;
    bytes += char(bits >> n & 0xFF);
  }
  return bytes;
}

std::string to_base64(std::string_view bytes) {
  std::string text;
  for (size_t i = 0; i < bytes.size(); i += 3) {
    uint32_t bits = 0;
    for (size_t j = 0; j < 3; ++j)
      bits = bits << 8 | (i + j < bytes.size() ? uint8_t(bytes[i + j]) : 0U);
    for (size_t j = 0; j < 4; ++j)
      text += i + j <= bytes.size() ? base64_digits[bits >> (18 - 6 * j) & 63] : '=';
  }
  return text;
}

}  // namespace stretto::nn::tokenizers
