#include <algorithm>
#include <charconv>
#include <cstring>

#include "core/one_line.h"
#include "pretrained/chat/chat_template_parser.h"
#include "pretrained/chat/chat_template_text.h"

namespace stretto::nn::chat {
namespace {

using Kind = Token::Kind;

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool starts_name(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }

// Returns the source with "\n" as the only line break, and without the last one.
std::string normalized(const std::string& source) {
  std::string text;
  for (size_t i = 0; i < source.size(); ++i) {
    const bool pair = source[i] == '\r' && i + 1 < source.size() && source[i + 1] == '\n';
    if (!pair) text += source[i] == '\r' ? '\n' : source[i];
  }
  if (text.ends_with('\n')) text.pop_back();
  return text;
}

class Lexer {
 public:
  explicit Lexer(const std::string& source) : source_(normalized(source)) {}

  std::vector<Token> run() {
    while (at_ < source_.size()) {
      size_t open = source_.find('{', at_);
      while (open < source_.size() && (open + 1 == source_.size() || !opens(source_[open + 1])))
        open = source_.find('{', open + 1);
      if (open == std::string::npos) {
        add(Kind::text, source_.substr(at_));
        break;
      }
      const char kind = source_[open + 1];
      const size_t inside = open + 2;
      const char next = inside < source_.size() ? source_[inside] : ' ';
      const char sign = next == '-' || next == '+' ? next : ' ';
      add_text(open, kind, sign);
      at_ = sign == ' ' ? inside : inside + 1;
      if (kind == '#') {
        skip_comment();
      } else {
        add(kind == '%' ? Kind::open_tag : Kind::open_output, kind == '%' ? "{%" : "{{");
        add_tag(kind == '%');
      }
    }
    at_ = source_.size();
    add(Kind::end, "the end of the template");
    return std::move(tokens_);
  }

 private:
  static bool opens(char c) { return c == '%' || c == '{' || c == '#'; }

  // Line of the current position.
  int line() {
    for (; counted_ < at_; ++counted_) line_ += source_[counted_] == '\n';
    return line_;
  }
  void add(Kind kind, std::string value) {
    if (kind != Kind::text || !value.empty()) tokens_.push_back({kind, std::move(value), line()});
  }
  bool at(const char* text) const { return source_.compare(at_, std::strlen(text), text) == 0; }
  bool take(const char* text) {
    if (!at(text)) return false;
    at_ += std::strlen(text);
    return true;
  }

  // Adds the text before a tag, without white space that the tag removes.
  void add_text(size_t end, char kind, char sign) {
    const bool line_start = at_ == 0 || source_[at_ - 1] == '\n';
    std::string text = source_.substr(at_, end - at_);
    if (sign == '-') {
      text.resize(skip_space_backwards(text, text.size()));
    } else if (sign != '+' && kind != '{') {
      const size_t first = text.rfind('\n') + 1;  // 0 if there is none
      if ((first > 0 || line_start) && skip_space(text, first) == text.size()) text.resize(first);
    }
    add(Kind::text, std::move(text));
  }

  void skip_comment() {
    const size_t end = source_.find("#}", at_);
    if (end == std::string::npos) fail_at(line(), "the comment has no end");
    const char sign = end > at_ ? source_[end - 1] : ' ';
    at_ = end + 2;
    if (sign == '-')
      at_ = skip_space(source_, at_);
    else if (sign != '+')
      take("\n");
  }

  // Takes the end of a tag, with the white space that it removes.
  bool take_end(bool is_tag) {
    if (is_tag && take("+%}")) return true;
    if (take(is_tag ? "-%}" : "-}}")) {
      at_ = skip_space(source_, at_);
      return true;
    }
    if (!take(is_tag ? "%}" : "}}")) return false;
    if (is_tag) take("\n");
    return true;
  }

  void add_tag(bool is_tag) {
    std::string open;  // brackets
    while (at_ < source_.size()) {
      const size_t start = at_;
      if (open.empty() && take_end(is_tag)) {
        const size_t after = at_;
        at_ = start;
        add(is_tag ? Kind::close_tag : Kind::close_output, is_tag ? "%}" : "}}");
        at_ = after;
        return;
      }
      const size_t word = skip_space(source_, at_);
      const char c = source_[at_];
      if (word > at_)
        at_ = word;
      else if (is_digit(c))
        add_number();
      else if (starts_name(c))
        add_name();
      else if (c == '\'' || c == '"')
        add_string(c);
      else
        add_symbol(open);
    }
  }

  void add_name() {
    size_t end = at_;
    while (end < source_.size() && (starts_name(source_[end]) || is_digit(source_[end]))) ++end;
    add(Kind::name, source_.substr(at_, end - at_));
    at_ = end;
  }

  size_t digits_end(size_t at) const {
    while (at < source_.size() && is_digit(source_[at])) ++at;
    return at;
  }

  void add_number() {
    const size_t start = at_;
    size_t end = digits_end(start);
    bool real = false;
    if (source_[start - 1] != '.') {
      if (source_.compare(end, 1, ".") == 0 && digits_end(end + 1) > end + 1) {
        end = digits_end(end + 1);
        real = true;
      }
      if (source_.compare(end, 1, "e") == 0 || source_.compare(end, 1, "E") == 0) {
        const bool sign =
            end + 1 < source_.size() && std::strchr("+-", source_[end + 1]) != nullptr;
        const size_t exponent = end + (sign ? 2 : 1);
        if (exponent < source_.size() && digits_end(exponent) > exponent) {
          end = digits_end(exponent);
          real = true;
        }
      }
    }
    const bool more = end < source_.size() && starts_name(source_[end]);
    const std::string value = source_.substr(start, end - start);
    if (more || (!real && value.size() > 1 && value[0] == '0') || (!real && value.size() > 18))
      fail_at(line(), "the number ", in_quotes(value),
              " is not a decimal one of at most 18 digits");
    add(real ? Kind::real : Kind::integer, value);
    at_ = end;
  }

  void add_string(char quote) {
    size_t end = at_ + 1;
    while (end < source_.size() && source_[end] != quote) end += source_[end] == '\\' ? 2 : 1;
    if (end >= source_.size()) fail_at(line(), "the string has no end");
    add(Kind::string, unescaped(source_.substr(at_ + 1, end - at_ - 1)));
    at_ = end + 1;
  }

  // Replaces the escapes of Python.
  std::string unescaped(const std::string& text) {
    std::string value;
    for (size_t i = 0; i < text.size(); ++i) {
      if (text[i] != '\\') {
        value += text[i];
        continue;
      }
      const char c = text[++i];
      static constexpr const char* names = "ntr\\'\"abfv";
      static constexpr const char* values = "\n\t\r\\'\"\a\b\f\v";
      if (const char* found = c == '\0' ? nullptr : std::strchr(names, c)) {
        value += values[found - names];
      } else if (c == 'x' || c == 'u' || c == 'U') {
        append_utf8(value, hexadecimal(text, i, c == 'x' ? 2 : c == 'u' ? 4 : 8));
      } else if (c == 'N' || (c >= '0' && c <= '7') || static_cast<unsigned char>(c) >= 128) {
        fail_at(line(),
                "a backslash in a string stands before a digit, N or a character that is "
                "not ASCII; not supported, ",
                render_yourself);
      } else if (c != '\n') {  // a backslash at the end of a line removes both
        value += '\\';
        value += c;
      }
    }
    return value;
  }

  // Reads the digits behind text[i] and moves i to the last one.
  uint32_t hexadecimal(const std::string& text, size_t& i, size_t digits) {
    uint32_t code = 0;
    const char* begin = text.data() + i + 1;
    const char* end = begin + std::min(digits, text.size() - i - 1);
    const bool complete = std::from_chars(begin, end, code, 16).ptr == begin + digits;
    i += digits;
    if (!complete || code > 0x10FFFF || (code >= 0xD800 && code < 0xE000))
      fail_at(line(), "an escape in a string has too few digits or is not a character");
    return code;
  }

  void add_symbol(std::string& open) {
    for (const char* pair : {"**", "//", "==", "!=", "<=", ">="})
      if (at(pair)) {
        add(Kind::symbol, pair);
        at_ += 2;
        return;
      }
    const char c = source_[at_];
    const char* brackets = "()[]{}";
    const char* bracket = c == '\0' ? nullptr : std::strchr(brackets, c);
    if (c == '\0' || (bracket == nullptr && std::strchr("+-*/%~<>=.:|,;", c) == nullptr))
      fail_at(line(), "the character ", in_quotes(source_.substr(at_, 1)), " is not expected");
    if (bracket != nullptr && (bracket - brackets) % 2 == 0) open += bracket[1];
    if (bracket != nullptr && (bracket - brackets) % 2 == 1) {
      if (open.empty() || open.back() != c) fail_at(line(), "\"", c, "\" closes nothing");
      open.pop_back();
    }
    add(Kind::symbol, std::string(1, c));
    ++at_;
  }

  const std::string source_;
  size_t at_ = 0;
  size_t counted_ = 0;
  int line_ = 1;
  std::vector<Token> tokens_;
};

}  // namespace

std::vector<Token> tokens_of(const std::string& source) { return Lexer(source).run(); }

}  // namespace stretto::nn::chat
