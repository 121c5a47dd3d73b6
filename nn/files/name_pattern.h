// Name patterns with placeholders, for the rules of a NameMap.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace stretto::nn {

/// A pattern in which "{}" matches a number of at most nine digits, "*" any text (the shortest that
/// fits), and "[text]" an optional text.
class NamePattern {
 public:
  /// Throws Error if the pattern has more than one [text], or placeholders in it.
  explicit NamePattern(std::string text);

  /// The texts that placeholders have matched, in order.
  struct Holes {
    std::vector<std::string> numbers;  ///< Matches of "{}".
    std::vector<std::string> texts;    ///< Matches of "*".
  };
  /// Returns the matches if the pattern matches the whole name; otherwise unset.
  std::optional<Holes> match(std::string_view name) const;
  /// Returns the name with the placeholders replaced by matches, including "[text]". Surplus
  /// matches are ignored.
  std::string fill(const Holes& holes) const;
  /// True if there are enough matches for all placeholders.
  bool filled_by(const Holes& holes) const {
    return numbers_ <= holes.numbers.size() && texts_ <= holes.texts.size();
  }
  /// True if another pattern has enough placeholders for those of this one.
  bool filled_by(const NamePattern& other) const {
    return numbers_ <= other.numbers_ && texts_ <= other.texts_;
  }
  /// True if the pattern has a "[text]".
  bool has_optional_text() const { return long_ != short_; }
  /// True if the pattern has a "{}".
  bool has_numbers() const { return numbers_ > 0; }

  /// Returns the pattern.
  const std::string& text() const { return text_; }

 private:
  std::string text_, long_, short_;  // long_ and short_: with and without "[text]"
  size_t numbers_ = 0, texts_ = 0;
};

}  // namespace stretto::nn
