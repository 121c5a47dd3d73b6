// From text to numbers and back: bytes, characters or words.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace stretto::nn {

/// bytes: the bytes that occur; nothing is unknown. chars: the code points of UTF-8 that occur, and
/// one more token for all others. words: what stands between blanks, and <eos> at the end of every
/// line (also of the last), by falling frequency; rarer words than the limit allows are <unk>.
enum class TokenKind { bytes, chars, words };

/// The pieces of a text that are one token each.
class PieceReader {
 public:
  /// From `offset` on, where a piece begins (offset() of another reader of the text).
  PieceReader(TokenKind kind, std::string_view text, size_t offset = 0)
      : kind_(kind), text_(text), at_(offset) {}
  /// The next piece; false at the end. That of a line's end is "<eos>".
  bool next(std::string_view& piece);
  size_t offset() const { return at_; }

 private:
  TokenKind kind_;
  std::string_view text_;
  size_t at_;
  bool ended_ = false;
};

/// A vocabulary and what it makes of a text. A handle: copies share the vocabulary.
///
///     const nn::Tokenizer tokenizer = nn::Tokenizer::learn(nn::TokenKind::chars, text);
class Tokenizer {
 public:
  /// The vocabulary of `text`; for bytes, of `more` too. `limit` > 0: at most so many words, <eos>
  /// and <unk> included, so at least 2. Chars and words expect UTF-8 (invalid_utf8). Throws Error
  /// for words whose table does not fit into the memory.
  static Tokenizer learn(TokenKind kind, std::string_view text, int64_t limit = 0,
                         std::string_view more = {});

  int64_t size() const;
  TokenKind kind() const;

  /// Throws Error "[Tokenizer] byte 0x41 ('A') is not in the vocabulary" for such a byte; all else
  /// that is not in it is unknown.
  std::vector<int32_t> encode(std::string_view text) const;
  /// The token of a piece; -1 for a byte that is not in the vocabulary.
  int32_t operator()(std::string_view piece) const;
  /// Of bytes: the token of each, as above.
  const std::array<int32_t, 256>& of_bytes() const;
  /// Words get a blank between them and <eos> a line break; an unknown character is U+FFFD. Throws
  /// Error for a token outside 0 … size() − 1.
  std::string decode(const std::vector<int64_t>& tokens) const;

  /// The vocabulary as UTF-8 text, for the notes of a checkpoint, and back; Error for what is none.
  std::string to_note() const;
  static Tokenizer from_note(TokenKind kind, const std::string& note);

 private:
  struct Vocabulary;
  Tokenizer(TokenKind kind, std::vector<std::string> pieces);

  std::shared_ptr<const Vocabulary> vocabulary_;
};

/// Throws Error "[Tokenizer] byte 0x41 ('A') is not in the vocabulary".
[[noreturn]] void refuse_byte(char byte);

/// Where `text` stops being UTF-8 (overlong forms and surrogates are none); -1: nowhere.
int64_t invalid_utf8(std::string_view text);

}  // namespace stretto::nn
