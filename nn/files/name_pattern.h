// Names with holes: what the rules of a NameMap are written in.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace stretto::nn {

/// "{}" stands for a number of at most nine digits, "*" for any text, the shortest that fits, and
/// "[text]" for text that a name may have or not.
class NamePattern {
 public:
  explicit NamePattern(std::string text);

  /// What stands in the holes, in order.
  struct Holes {
    std::vector<std::string> numbers, texts;
  };
  /// The holes of a name that the pattern is the whole of; nothing when it is not.
  std::optional<Holes> match(std::string_view name) const;
  /// The name with these holes, "[text]" included; what is left over of them is not used.
  std::string fill(const Holes& holes) const;
  /// Whether these, or those of another pattern, are enough for it.
  bool filled_by(const Holes& holes) const {
    return numbers_ <= holes.numbers.size() && texts_ <= holes.texts.size();
  }
  bool filled_by(const NamePattern& other) const {
    return numbers_ <= other.numbers_ && texts_ <= other.texts_;
  }
  bool has_optional_text() const { return long_ != short_; }
  bool has_numbers() const { return numbers_ > 0; }

  const std::string& text() const { return text_; }

 private:
  std::string text_, long_, short_;  // with and without "[text]"
  size_t numbers_ = 0, texts_ = 0;
};

}  // namespace stretto::nn
