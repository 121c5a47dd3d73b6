// pcre_pattern(): from the syntax of Oniguruma to that of PCRE2.
#include <cstdio>
#include <span>
#include <string_view>

#include "core/error.h"
#include "core/one_line.h"
#include "core/utf8.h"
#include "pretrained/tokenizers/text/op.h"
#include "pretrained/tokenizers/text/pattern.h"
#include "pretrained/tokenizers/text/unicode_differences.h"

namespace stretto::nn::tokenizers {
namespace {

constexpr const char* white_space =
    "\\t-\\r\\x{20}\\x{85}\\x{A0}\\x{1680}\\x{2000}-\\x{200A}\\x{2028}\\x{2029}\\x{202F}\\x{205F}"
    "\\x{3000}";

class Translator {
 public:
  Translator(const std::string& expression, const std::string& name)
      : in_(expression), name_(name) {}

  std::string run() {
    while (at_ < in_.size()) item();
    if (groups_ != 0) refuse("unbalanced parentheses");
    return out_;
  }

 private:
  [[noreturn]] void refuse(const std::string& what) const {
    fail(op, name_, ": the pattern ", in_quotes(in_), ": ", what, " is not supported");
  }

  bool take(std::string_view text) {
    if (in_.compare(at_, text.size(), text) != 0) return false;
    at_ += text.size();
    return true;
  }

  char peek() const { return at_ < in_.size() ? in_[at_] : '\0'; }

  void item() {
    const char c = in_[at_];
    switch (c) {
      case '(':
        return group();
      case ')':
        if (groups_-- == 0) refuse("unbalanced parentheses");
        out_ += in_[at_++];
        return quantifier();
      case '[':
        ++at_;
        out_ += character_class();
        return quantifier();
      case '\\':
        ++at_;
        out_ += escape(false);
        return quantifier();
      case '|':
      case '.':
        out_ += in_[at_++];
        if (c == '.') quantifier();
        return;
      case '^':
      case '$':
      case '*':
      case '+':
      case '?':
      case '{':
        refuse(std::string("'") + c + "' here");
      default:
        literal();
        quantifier();
    }
  }

  void literal() {
    const size_t size = utf8_size(in_[at_]);
    const std::string character = in_.substr(at_, size);
    at_ += size;
    if (size == 1 && std::string_view("]}#").find(character[0]) != std::string_view::npos)
      out_ += '\\';
    out_ += character;
  }

  void group() {
    ++at_;
    ++groups_;
    if (groups_ > 100) refuse("more than 100 groups in each other");
    if (!take("?")) {
      out_ += "(?:";
      return;
    }
    for (const char* kind : {":", "i:", "=", "!", "<=", "<!", ">"}) {
      if (!take(kind)) continue;
      out_ += std::string("(?") + kind;
      return;
    }
    refuse("the group (?" + in_.substr(at_, 4) + "…");
  }

  void quantifier() {
    const size_t begin = at_;
    if (peek() == '*' || peek() == '+' || peek() == '?') {
      out_ += in_[at_++];
      if (peek() == '?' || peek() == '+') out_ += in_[at_++];
    } else if (peek() == '{') {
      const size_t end = in_.find('}', at_);
      const std::string body = end == std::string::npos ? "" : in_.substr(at_ + 1, end - at_ - 1);
      const size_t comma = body.find(',');
      const auto is_number = [](const std::string& text) {
        return !text.empty() && text.size() <= 3 &&
               text.find_first_not_of("0123456789") == std::string::npos;
      };
      if (!is_number(body.substr(0, comma)) ||
          (comma != std::string::npos && comma + 1 < body.size() &&
           !is_number(body.substr(comma + 1))))
        refuse("the count {" + body + "}");
      at_ = end + 1;
      out_ += "{" + body + "}";
      if (peek() == '?') refuse("a lazy count");
    }
    if (at_ > begin && (peek() == '*' || peek() == '+' || peek() == '?' || peek() == '{'))
      refuse("a repeated repetition");
  }

  // Returns the translation of an escape, whose backslash is read.
  std::string escape(bool in_class) {
    if (at_ == in_.size()) refuse("a backslash at the end");
    const char c = in_[at_++];
    switch (c) {
      case 's':
        return in_class ? white_space : std::string("[") + white_space + "]";
      case 'S':
        if (in_class) refuse("\\S in a class");
        return std::string("[^") + white_space + "]";
      case 'p':
      case 'P':
        return property(in_class, c == 'P');
      case 'r':
      case 'n':
      case 't':
      case 'f':
      case 'v':
        return c == 'v' ? "\\x{0B}" : std::string("\\") + c;
      case 'x':
      case 'u':
        return code_point(c);
      default:
        if ((c >= '!' && c <= '/') || (c >= ':' && c <= '@') || (c >= '[' && c <= '`') ||
            (c >= '{' && c <= '~') || c == ' ')
          return std::string("\\") + c;
        refuse(std::string("\\") + c);
    }
  }

  std::string code_point(char kind) {
    size_t size = kind == 'u' ? 4 : 2;
    const bool braces = kind == 'x' && take("{");
    const size_t end = braces ? in_.find('}', at_) : at_ + size;
    if (end == std::string::npos || end > in_.size()) refuse("an escape without its digits");
    const std::string digits = in_.substr(at_, end - at_);
    if (digits.empty() || digits.size() > 6 ||
        digits.find_first_not_of("0123456789abcdefABCDEF") != std::string::npos)
      refuse("the escape \\" + std::string(1, kind) + digits);
    at_ = end + (braces ? 1 : 0);
    return "\\x{" + digits + "}";
  }

  static std::string ranges(std::span<const Range> list) {
    std::string text;
    for (const Range& range : list) {
      char buffer[40];
      std::snprintf(buffer, sizeof buffer, "\\x{%X}-\\x{%X}", range.first, range.last);
      text += buffer;
    }
    return text;
  }

  // \p{L}: PCRE2's property and the characters that only Oniguruma's newer Unicode has.
  std::string property(bool in_class, bool negated) {
    std::string kind;
    if (take("{")) {
      if (take("^")) negated = !negated;
      const size_t end = std::min(in_.find('}', at_), in_.size());
      kind = in_.substr(at_, end - at_);
      at_ = std::min(end + 1, in_.size());
    } else {
      refuse("\\p without braces");
    }
    const UnicodeDifferences d = unicode_differences();
    std::string all = "\\p{" + kind + "}";
    if (kind == "Lu") {
      all += ranges(d.new_Lu);
    } else if (kind == "Ll") {
      all += ranges(d.new_Ll);
    } else if (kind == "Lm") {
      all += ranges(d.new_Lm);
    } else if (kind == "Lo") {
      all += ranges(d.new_Lo);
    } else if (kind == "L") {
      all += ranges(d.new_Lu) + ranges(d.new_Ll) + ranges(d.new_Lm) + ranges(d.new_Lo);
    } else if (kind == "M") {
      all += ranges(d.new_M);
    } else if (kind == "N") {
      all += ranges(d.new_N);
    } else if (kind == "P") {
      all += ranges(d.new_P);
    } else if (kind == "S") {
      all += ranges(d.new_S);
    } else if (kind != "Lt") {
      refuse("the property " + in_quotes(kind) + " (L, Lu, Ll, Lt, Lm, Lo, M, N, P and S are)");
    }
    if (in_class && negated) refuse("a negated property in a class");
    if (in_class) return all;
    return (negated ? "[^" : "[") + all + "]";
  }

  // A class; a set inside it is a union.
  std::string character_class(int depth = 0) {
    if (depth > 8) refuse("more than 8 sets in each other");
    const bool negated = take("^");
    if (negated && depth > 0) refuse("a negated set in a set");
    std::string text;
    if (peek() == ']') refuse("an empty set");
    for (;;) {
      if (at_ >= in_.size()) refuse("a set without its end");
      if (take("]")) break;
      if (take("&&")) refuse("an intersection of sets");
      if (in_.compare(at_, 2, "[:") == 0) refuse("a POSIX bracket");
      if (take("[")) {
        text += character_class(depth + 1);
      } else if (take("\\")) {
        text += escape(true);
      } else {
        const size_t size = utf8_size(in_[at_]);
        if (size == 1 && in_[at_] == '^') text += '\\';
        if (size == 1 && in_[at_] == '-' && (text.empty() || in_[at_ + 1] == ']')) text += '\\';
        text.append(in_, at_, size);
        at_ += size;
      }
    }
    if (depth > 0) return text;
    return (negated ? "[^" : "[") + text + "]";
  }

  const std::string& in_;
  const std::string& name_;
  std::string out_;
  size_t at_ = 0;
  int groups_ = 0;
};

}  // namespace

std::string pcre_pattern(const std::string& expression, const std::string& name) {
  check(expression.size() <= 4096 && find_invalid_utf8(expression).at == expression.size(), op,
        name, ": a pattern must be UTF-8 of at most 4096 bytes");
  return Translator(expression, name).run();
}

}  // namespace stretto::nn::tokenizers
