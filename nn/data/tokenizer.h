// The interface of all tokenizers of text.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace stretto::nn {

/// Converts text to ids and back: VocabularyTokenizer (bytes, characters, words) and, in the
/// component `pretrained`, SubwordTokenizer. Ids are int64_t everywhere, as in tensors of tokens.
class Tokenizer {
 public:
  virtual ~Tokenizer() = default;
  /// Returns the number of ids, which are 0 … size() − 1.
  virtual int64_t size() const = 0;
  /// Returns the ids of a text.
  virtual std::vector<int64_t> encode(std::string_view text) const = 0;
  /// Returns the text of ids.
  virtual std::string decode(const std::vector<int64_t>& ids) const = 0;
};

}  // namespace stretto::nn
