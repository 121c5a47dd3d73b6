// From text to numbers and back: bytes, characters or words.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace stretto::examples {

/// bytes: the bytes that occur; nothing is unknown. chars: the code points of UTF-8 that occur, and
/// one more token for all others. words: what stands between blanks, and <eos> at the end of every
/// line (also of the last), by falling frequency; rarer words than the limit allows are <unk>.
enum class TokenKind { bytes, chars, words };

/// "bytes", "chars", "words"; UsageError for another name.
TokenKind token_kind(const std::string& name);

class Tokenizer {
 public:
  /// The vocabulary of `text`. `limit` > 0: at most so many words, <eos> and <unk> included. Chars
  /// and words expect UTF-8 (invalid_utf8).
  static Tokenizer learn(TokenKind kind, std::string_view text, int64_t limit = 0);

  Tokenizer(Tokenizer&&) = default;
  Tokenizer& operator=(Tokenizer&&) = default;

  int64_t size() const { return int64_t(pieces_.size()); }
  TokenKind kind() const { return kind_; }

  /// Throws UsageError "byte 0x41 ('A') is not in the vocabulary" for such a byte; all else that is
  /// not in it is unknown.
  std::vector<int32_t> encode(std::string_view text) const;
  /// Words get a blank between them and <eos> a line break; an unknown character is U+FFFD.
  std::string decode(const std::vector<int64_t>& tokens) const;

  /// The vocabulary as UTF-8 text, for a checkpoint, and back; UsageError for what is none.
  std::string to_note() const;
  static Tokenizer from_note(TokenKind kind, const std::string& note);

 private:
  Tokenizer(TokenKind kind, std::vector<std::string> pieces);

  TokenKind kind_;
  std::vector<std::string> pieces_;  // by token
  std::unordered_map<std::string_view, int32_t> tokens_;
  int32_t unknown_ = -1;  // none for bytes
};

/// Where `text` stops being UTF-8 (overlong forms and surrogates are none); -1: nowhere.
int64_t invalid_utf8(std::string_view text);

}  // namespace stretto::examples
