// The tokenizer of bytes, characters or words.
#pragma once

#include <array>
#include <memory>

#include "tokenizer.h"

namespace stretto::nn {

/// The unit of text that is one token.
enum class TokenKind {
  bytes,  ///< The bytes that occur in the text; there is no token for unknown bytes.
  chars,  ///< The UTF-8 code points that occur, and one token for all others.
  /// Words separated by white space, and `<eos>` at the end of every line, also of the last one.
  /// Sorted by decreasing frequency; words beyond the limit are `<unk>`.
  words
};

/// Splits a text into the pieces that are one token each.
class PieceReader {
 public:
  /// Starts at byte `offset`, which must be the beginning of a piece (offset() of another reader).
  PieceReader(TokenKind kind, std::string_view text, size_t offset = 0)
      : kind_(kind), text_(text), at_(offset) {}
  /// Reads the next piece; false at the end of the text. For words, a line ends with "<eos>".
  bool next(std::string_view& piece);
  /// Returns the byte at which the next call of next() starts.
  size_t offset() const { return at_; }

 private:
  TokenKind kind_;
  std::string_view text_;
  size_t at_;
  bool ended_ = false;
};

/// The bytes, characters or words of a text as a vocabulary. A handle: copies share it.
///
///     const auto tokenizer = nn::VocabularyTokenizer::learn(nn::TokenKind::chars, text);
class VocabularyTokenizer final : public Tokenizer {
 public:
  /// Returns a tokenizer with the vocabulary of `text`; for bytes, also of `more`. For words,
  /// `limit` is the largest size of the vocabulary including `<eos>` and `<unk>`, at least 2 (0: no
  /// limit). Chars and words expect UTF-8 (find_invalid_utf8()). Throws Error if the table of words
  /// does not fit into memory.
  static VocabularyTokenizer learn(TokenKind kind, std::string_view text, int64_t limit = 0,
                                   std::string_view more = {});

  int64_t size() const override;
  /// Returns the kind of tokens.
  TokenKind kind() const;

  /// Returns the ids of a text. Unknown characters and words get the id for unknown ones. An
  /// unknown byte throws Error "[Tokenizer] byte 0x41 ('A') is not in the vocabulary".
  std::vector<int64_t> encode(std::string_view text) const override;
  /// Returns the text of ids. Words are separated by a blank, `<eos>` becomes a line break, an
  /// unknown character U+FFFD. Throws Error for an id outside of 0 … size() − 1.
  std::string decode(const std::vector<int64_t>& ids) const override;
  /// Returns the id of a piece; −1 for a byte that is not in the vocabulary.
  int64_t id(std::string_view piece) const;
  /// For bytes: returns the id of each byte; −1 for those that are not in the vocabulary.
  const std::array<int64_t, 256>& of_bytes() const;

  /// Returns the vocabulary as UTF-8 text, for the metadata of a checkpoint.
  std::string to_note() const;
  /// Returns a tokenizer from to_note(). Throws Error for a malformed text.
  static VocabularyTokenizer from_note(TokenKind kind, const std::string& note);

 private:
  struct Vocabulary;
  VocabularyTokenizer(TokenKind kind, std::vector<std::string> pieces);

  std::shared_ptr<const Vocabulary> vocabulary_;
};

/// Throws Error "[Tokenizer] byte 0x41 ('A') is not in the vocabulary".
[[noreturn]] void refuse_byte(char byte);

}  // namespace stretto::nn
