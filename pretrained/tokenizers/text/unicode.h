// Unicode: properties of characters, lower case and normalization, as `tokenizers` has them.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace stretto::nn::tokenizers {

/// Properties of a code point. Their Unicode versions differ, as those in `tokenizers`
/// (unicode_differences.cpp).
enum class Property : uint8_t {
  numeric = 1,      ///< Category N.
  punctuation = 2,  ///< Category P, and the symbols in ASCII.
  control = 4,      ///< Removed by BertNormalizer.
  accent = 8,       ///< Category Mn.
  mark = 16,        ///< Category M.
  word = 32,        ///< \w.
  extend = 64,      ///< Continues a grapheme cluster.
  opaque = 128      ///< Unchanged by normalization.
};

/// True if the code point has the property.
bool has(uint32_t point, Property property);

/// True for White_Space.
inline bool is_white_space(uint32_t point) {
  if (point < 0x80) return point == ' ' || (point >= '\t' && point <= '\r');
  return point == 0x85 || point == 0xA0 || point == 0x1680 ||
         (point >= 0x2000 && point <= 0x200A) || point == 0x2028 || point == 0x2029 ||
         point == 0x202F || point == 0x205F || point == 0x3000;
}

/// Appends the lower case of a code point.
void append_lower(std::string& to, uint32_t point);

/// The normalization forms of Unicode.
enum class Form { nfc, nfd, nfkc, nfkd };

/// Returns valid UTF-8 in a normalization form.
std::string normalized(std::string_view text, Form form);

/// Returns the byte behind the grapheme cluster at byte `at`. Clusters of at least 6 bytes may be
/// cut into their code points.
size_t end_of_short_cluster(std::string_view text, size_t at);

}  // namespace stretto::nn::tokenizers
