#include "nn/files/name_pattern.h"

#include <cctype>

#include "core/error.h"

namespace stretto::nn {
namespace {

constexpr std::string_view hole = "{}";

bool has_hole(std::string_view pattern, size_t at) { return pattern.substr(at, 2) == hole; }

size_t digits_at(std::string_view name, size_t at) {
  size_t end = at;
  while (end < name.size() && std::isdigit(static_cast<unsigned char>(name[end]))) ++end;
  return end - at;
}

// The last "*" so far: the position after it in the pattern, the range begin … end of the name that
// it matches, and how many "{}" were matched before it. If the rest of the pattern does not match,
// the range is extended by one character.
struct Star {
  size_t pattern, begin, end, numbers;
};

std::optional<NamePattern::Holes> match_one(std::string_view pattern, std::string_view name) {
  NamePattern::Holes holes;
  std::optional<Star> star;
  const auto close = [&] {
    if (star) holes.texts.emplace_back(name.substr(star->begin, star->end - star->begin));
  };
  size_t p = 0, n = 0;
  while (p < pattern.size() || n < name.size()) {
    if (p < pattern.size() && pattern[p] == '*') {
      close();
      star = Star{++p, n, n, holes.numbers.size()};
      continue;
    }
    if (has_hole(pattern, p)) {
      const size_t digits = digits_at(name, n);
      if (digits > 0 && digits <= 9) {
        holes.numbers.emplace_back(name.substr(n, digits));
        n += digits;
        p += hole.size();
        continue;
      }
    } else if (p < pattern.size() && n < name.size() && pattern[p] == name[n]) {
      ++p, ++n;
      continue;
    }
    if (!star || star->end == name.size()) return {};
    n = ++star->end;
    p = star->pattern;
    holes.numbers.resize(star->numbers);
  }
  close();
  return holes;
}

}  // namespace

NamePattern::NamePattern(std::string text) : text_(std::move(text)), long_(text_), short_(text_) {
  if (const size_t open = text_.find('['), close = text_.find(']');
      open != std::string::npos || close != std::string::npos) {
    check(open != std::string::npos && close != std::string::npos && open < close &&
              text_.find_first_of("[{}*", open + 1) >= close &&
              text_.find_first_of("[]", close + 1) == std::string::npos,
          "NameMap", "\"", text_, "\": only one [text] is allowed, without {} and *");
    long_.erase(close, 1).erase(open, 1);
    short_.erase(open, close - open + 1);
  }
  for (size_t at = 0; at < long_.size(); ++at) {
    numbers_ += has_hole(long_, at);
    texts_ += long_[at] == '*';
  }
}

std::optional<NamePattern::Holes> NamePattern::match(std::string_view name) const {
  std::optional<Holes> found = match_one(long_, name);
  if (!found && has_optional_text()) found = match_one(short_, name);
  return found;
}

std::string NamePattern::fill(const Holes& holes) const {
  std::string name;
  size_t number = 0, any = 0;
  for (size_t at = 0; at < long_.size(); ++at) {
    if (has_hole(long_, at)) {
      name += holes.numbers.at(number++);
      ++at;
    } else if (long_[at] == '*') {
      name += holes.texts.at(any++);
    } else {
      name += long_[at];
    }
  }
  return name;
}

}  // namespace stretto::nn
