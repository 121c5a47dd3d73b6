// Added tokens, such as <|im_end|>, which are found in a text before the model runs.
#pragma once

#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "../files/definition.h"
#include "../text/pattern.h"
#include "../text/trie.h"

namespace stretto::nn::tokenizers {

/// A part of a text: an added token, or text for the model (id −1).
struct Part {
  int32_t id;
  size_t begin, end;
};

/// Finds added tokens: of all that begin at the leftmost position, the longest. Of tokens with equal
/// texts the last one counts.
class AddedTokens {
 public:
  AddedTokens() = default;
  /// `contents[i]` is the text to look for for `tokens[i]`.
  AddedTokens(std::vector<AddedToken> tokens, const std::vector<std::string>& contents);

  bool empty() const { return tokens_.empty(); }
  /// Returns the parts of a text. Special tokens are only found if `allow_special`. A token with
  /// rstrip does not hide tokens in the white space that it takes: as in `tokenizers`, parts overlap.
  std::vector<Part> find(std::string_view text, bool allow_special) const;
  /// Sets `found[i]` for each token i of the constructor whose text occurs in `text`.
  void mark_all(std::string_view text, std::vector<bool>& found) const;
  /// Returns the size of the shortest token i with `chosen[i]` whose text begins at this position;
  /// 0: none.
  size_t size_at(std::string_view text, size_t at, const std::vector<bool>& chosen) const;

 private:
  bool is_single_word(std::string_view text, size_t begin, size_t end) const;

  std::vector<AddedToken> tokens_;
  std::vector<bool> begins_ = std::vector<bool>(256);  // the bytes with which tokens begin
  Trie trie_;
};

/// True for a text of more than one character that is not white space. A run of blanks in a chat
/// template does not control a model.
bool is_marker(std::string_view text);

}  // namespace stretto::nn::tokenizers
