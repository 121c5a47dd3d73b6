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
  /// Changes valid UTF-8 in place. Sets `at_start` to false if it removes the first character.
  virtual void apply(std::string& text, bool& at_start, MatchScratch& scratch) const = 0;
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

 private:
  std::string literal_;
  std::unique_ptr<Pattern> pattern_;
};

/// Appends `text` with all matches of `needle` replaced.
void append_replaced(std::string& to, std::string_view text, const Needle& needle,
                     const std::string& replacement, MatchScratch& scratch);

}  // namespace stretto::nn::tokenizers
