#include <algorithm>
#include <charconv>
#include <string_view>

#include "core/one_line.h"
#include "pretrained/chat/chat_template_parser.h"
#include "pretrained/chat/chat_template_text.h"

namespace stretto::nn::chat {
namespace {

using Kind = Token::Kind;

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool starts_name(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }
bool continues_name(char c) { return starts_name(c) || is_digit(c); }

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
    for (size_t open = opening(); open < source_.size(); open = opening()) {
      const char kind = source_[open + 1];
      const bool has_sign = is_any(open + 2, "+-");
      add_text(open, kind, has_sign ? source_[open + 2] : ' ');
      at_ = open + (has_sign ? 3 : 2);
      if (kind == '#')
        skip_comment();
      else
        add_tag(kind);
    }
    if (at_ < source_.size()) add(Kind::text, source_.substr(at_));
    at_ = source_.size();
    add(Kind::end, "the end of the template");
    return std::move(tokens_);
  }

 private:
  bool is_any(size_t at, std::string_view characters) const {
    return at < source_.size() && characters.find(source_[at]) != characters.npos;
  }
  bool take(const std::string& text) {
    const bool found = source_.compare(at_, text.size(), text) == 0;
    if (found) at_ += text.size();
    return found;
  }
  // Returns the end of the characters from `at` on that are `accepted`.
  size_t end_of(size_t at, bool (*accepted)(char)) const {
    while (at < source_.size() && accepted(source_[at])) ++at;
    return at;
  }
  // Returns the line of the current position.
  int line() {
    for (; counted_ < at_; ++counted_) line_ += source_[counted_] == '\n';
    return line_;
  }
  void add(Kind kind, std::string value) { tokens_.push_back({kind, std::move(value), line()}); }
  // Adds a token from the current position to `end`.
  void add_to(Kind kind, size_t end) {
    add(kind, source_.substr(at_, end - at_));
    at_ = end;
  }

  // Returns the position of the next {{, {% or {#.
  size_t opening() const {
    size_t open = source_.find('{', at_);
    while (open < source_.size() && !is_any(open + 1, "%{#")) open = source_.find('{', open + 1);
    return open;
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
    if (!text.empty()) add(Kind::text, std::move(text));
  }

  void skip_comment() {
    const size_t end = source_.find("#}", at_);
    if (end == std::string::npos) fail_at(line(), "the comment has no end");
    at_ = end > at_ && is_any(end - 1, "+-") ? end - 1 : end;
    take_end('#');
  }

  // Takes the end of a tag that begins with { and `kind`, with the white space that it removes.
  bool take_end(char kind) {
    const std::string end{kind == '{' ? '}' : kind, '}'};
    if (take("-" + end)) {
      at_ = skip_space(source_, at_);
      return true;
    }
    if (kind != '{' && take("+" + end)) return true;
    if (!take(end)) return false;
    if (kind != '{') take("\n");
    return true;
  }

  void add_tag(char kind) {
    add(Kind::symbol, kind == '%' ? "{%" : "{{");
    std::string open;  // the closing brackets that are missing
    while (at_ < source_.size()) {
      const int start = line();
      if (open.empty() && take_end(kind)) {
        tokens_.push_back({Kind::symbol, kind == '%' ? "%}" : "}}", start});
        return;
      }
      const size_t word = skip_space(source_, at_);
      const char c = source_[at_];
      if (word > at_)
        at_ = word;
      else if (is_digit(c))
        add_number();
      else if (starts_name(c))
        add_to(Kind::name, end_of(at_, continues_name));
      else if (c == '\'' || c == '"')
        add_string(c);
      else
        add_symbol(open);
    }
  }

  void add_number() {
    // The end of a mark, an optional sign and digits; `from` if they are not complete.
    const auto part_end = [&](size_t from, const char* marks, const char* signs) {
      if (!is_any(from, marks)) return from;
      const size_t digits = from + (is_any(from + 1, signs) ? 2 : 1),
                   end = end_of(digits, is_digit);
      return end > digits ? end : from;
    };
    const size_t whole = end_of(at_, is_digit);
    const bool is_index = source_[at_ - 1] == '.';
    const size_t end = is_index ? whole : part_end(part_end(whole, ".", ""), "eE", "+-");
    const bool real = end > whole;
    const bool zeros = source_[at_] == '0' && end - at_ > 1;
    if ((end < source_.size() && starts_name(source_[end])) || (!real && (zeros || end - at_ > 18)))
      fail_at(line(), "the number ", in_quotes(source_.substr(at_, end - at_)),
              " is not a decimal one of at most 18 digits");
    add_to(real ? Kind::real : Kind::integer, end);
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
    static constexpr std::string_view names = "ntr\\'\"abfv", values = "\n\t\r\\'\"\a\b\f\v";
    std::string value;
    for (size_t i = 0; i < text.size(); ++i) {
      if (text[i] != '\\') {
        value += text[i];
        continue;
      }
      const char c = text[++i];
      if (const size_t found = names.find(c); found != names.npos)
        value += values[found];
      else if (c == 'x' || c == 'u' || c == 'U')
        append_utf8(value, hexadecimal(text, i, c == 'x' ? 2 : c == 'u' ? 4 : 8));
      else if (c == 'N' || (c >= '0' && c <= '7') || static_cast<unsigned char>(c) >= 128)
        fail_at(line(),
                "a backslash in a string stands before a digit, N or a character that is "
                "not ASCII; not supported, ",
                render_yourself);
      else if (c != '\n')  // a backslash at the end of a line removes both
        value.append({'\\', c});
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
      if (source_.compare(at_, 2, pair) == 0) return add_to(Kind::symbol, at_ + 2);
    const char c = source_[at_];
    static constexpr std::string_view opening = "([{", closing = ")]}";
    if (const size_t bracket = opening.find(c); bracket != opening.npos) {
      open += closing[bracket];
    } else if (closing.find(c) != closing.npos) {
      if (open.empty() || open.back() != c) fail_at(line(), "\"", c, "\" closes nothing");
      open.pop_back();
    } else if (!is_any(at_, "+-*/%~<>=.:|,;")) {
      fail_at(line(), "the character ", in_quotes(source_.substr(at_, 1)), " is not expected");
    }
    add_to(Kind::symbol, at_ + 1);
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
