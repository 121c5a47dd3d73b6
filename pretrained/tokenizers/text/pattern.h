// Regular expressions of tokenizers.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

namespace stretto::nn::tokenizers {

/// A part of a text: bytes begin … end − 1.
struct Span {
  size_t begin, end;
};

/// Memory for matching, one per thread.
class MatchScratch {
 public:
  MatchScratch();
  ~MatchScratch();
  MatchScratch(const MatchScratch&) = delete;
  MatchScratch& operator=(const MatchScratch&) = delete;

  /// Limits the size of changed texts to 64 times that of `text`, plus 64 KB: a hostile file could
  /// contain rules that multiply it.
  void limit_growth(size_t text_size) { largest_ = 64 * text_size + 65536; }
  /// Throws Error if a text of this size is over the limit.
  void check_growth(size_t text_size) const {
    if (text_size > largest_) [[unlikely]]
      refuse_growth();
  }

 private:
  friend class Pattern;
  [[noreturn]] void refuse_growth() const;

  struct Data;
  std::unique_ptr<Data> data_;
  size_t largest_ = size_t(1) << 31;
};

/// A compiled regular expression with the meaning that it has in `tokenizers` (Oniguruma).
class Pattern {
 public:
  /// Throws Error "[tokenizer] name: …" for syntax that is not supported.
  Pattern(const std::string& expression, const std::string& name);

  /// Finds the first match at or after byte `from` of valid UTF-8; false if there is none. Throws
  /// Error if the pattern needs too much memory or time.
  bool find(std::string_view text, size_t from, Span& match, MatchScratch& scratch) const;

 private:
  struct Code;
  std::shared_ptr<const Code> code_;
};

/// Returns a pattern for PCRE2 with the meaning of an expression in Oniguruma's syntax. Throws Error
/// "[tokenizer] name: …" for syntax whose meaning differs or is not known.
std::string pcre_pattern(const std::string& expression, const std::string& name);

/// The pattern of the pre-tokenizer ByteLevel (GPT-2).
extern const char* const gpt2_pattern;

}  // namespace stretto::nn::tokenizers
