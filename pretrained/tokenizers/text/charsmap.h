// Compiled normalization rules of SentencePiece (precompiled_charsmap).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace stretto::nn::tokenizers {

/// A map from byte strings to their replacements: a Darts double-array trie with the replacements
/// behind it, each ended by a zero.
class Charsmap {
 public:
  /// Without rules.
  Charsmap() = default;
  /// Throws Error "[tokenizer] name: …" if the data are malformed.
  Charsmap(std::string_view data, const std::string& name);

  /// A key at the start of a text.
  struct Match {
    size_t size = 0;  ///< 0 if there is none.
    std::string_view replacement;
  };
  /// Returns the shortest key that begins `text`.
  Match shortest(std::string_view text) const { return find(text, true); }
  /// Returns the longest key that begins `text`.
  Match longest(std::string_view text) const { return find(text, false); }

 private:
  Match find(std::string_view text, bool shortest) const;

  std::vector<uint32_t> units_;
  std::string replacements_;
};

/// Returns the bytes of base64 text; nothing if it is malformed.
std::optional<std::string> from_base64(std::string_view text);
/// Returns bytes as base64.
std::string to_base64(std::string_view bytes);

}  // namespace stretto::nn::tokenizers
