// Normalizers: what changes the text before it is split into words.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "../files/definition.h"
#include "../text/pattern.h"

namespace stretto::nn::tokenizers {

/// A normalizer. Immutable, hence thread-safe.
class Normalizer {
 public:
  virtual ~Normalizer() = default;
  /// Changes valid UTF-8 in place. `first` is the number of bytes at the start of the text that come
  /// from the first character of the input: 0 if that character was removed.
  virtual void apply(std::string& text, size_t& first, MatchScratch& scratch) const = 0;
};

/// Returns the normalizer of a definition; null if there is none. Throws Error for a component that
/// is not supported.
std::unique_ptr<Normalizer> make_normalizer(const Definition& definition);

/// Returns the normalizer of SentencePiece's library.
std::unique_ptr<Normalizer> make_sentencepiece_normalizer(const Definition& definition);

/// A literal string or a regular expression: {"String": …} or {"Regex": …}.
class Needle {
 public:
  Needle(const Json& json, const JsonReader& fields, const std::string& name);
  /// Finds the first match at or after `from`; false if there is none.
  bool find(std::string_view text, size_t from, Span& match, MatchScratch& scratch) const;
  /// Returns the literal string; it is empty for a regular expression.
  const std::string& literal() const { return literal_; }

 private:
  std::string literal_;
  std::unique_ptr<Pattern> pattern_;
};

/// The matches of a needle in a text, as the crate `onig` finds them: no empty match directly behind
/// another match, and none in an empty text.
class Matches {
 public:
  Matches(const Needle& needle, std::string_view text, MatchScratch& scratch)
      : needle_(needle), text_(text), scratch_(scratch) {}
  /// Finds the next match; false if there is none.
  bool next(Span& match);

 private:
  const Needle& needle_;
  std::string_view text_;
  MatchScratch& scratch_;
  size_t from_ = 0, last_end_ = std::string_view::npos;
};

/// Writes `text` with all matches of `needle` replaced to the empty string `to`; false if there are
/// none, and nothing is written. `first` is that of Normalizer::apply().
bool replace(std::string_view text, const Needle& needle, const std::string& replacement,
             size_t& first, MatchScratch& scratch, std::string& to);

}  // namespace stretto::nn::tokenizers
