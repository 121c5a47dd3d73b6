#include "examples/common/text_file.h"

#include <algorithm>
#include <array>

#include "core/known_format.h"
#include "examples/common/settings.h"

namespace stretto::examples {
namespace {

constexpr std::string_view byte_order_mark = "\xEF\xBB\xBF";

}  // namespace

void refuse_known_format(std::string_view bytes, const std::string& path,
                         const std::string& expected) {
  const std::string format = known_format(bytes);
  require(format.empty(), path + ": is " + format + "; expected " + expected);
}

std::vector<std::string_view> fields_of(std::string_view text, char separator, size_t most) {
  std::vector<std::string_view> parts;
  for (size_t begin = 0, end; begin <= text.size() && parts.size() < most; begin = end + 1) {
    end = std::min(text.find(separator, begin), text.size());
    parts.push_back(text.substr(begin, end - begin));
  }
  return parts;
}

std::string_view next_field(std::string_view line, size_t& at, char separator, bool quotes,
                            std::string& text) {
  if (!quotes || at == line.size() || line[at] != '"') {
    const size_t end = std::min(line.find(separator, at), line.size());
    const std::string_view plain = line.substr(at, end - at);
    at = end;
    return plain;
  }
  text.clear();
  for (++at;; ++at) {
    require(at < line.size(), "a quoted field does not end");
    if (line[at] == '"') {
      if (at + 1 == line.size() || line[at + 1] != '"') break;
      ++at;
    }
    text += line[at];
  }
  ++at;
  require(at == line.size() || line[at] == separator, "text follows a closing quote");
  return text;
}

std::string_view without_byte_order_mark(std::string_view text) {
  while (text.starts_with(byte_order_mark)) text.remove_prefix(byte_order_mark.size());
  return text;
}

void each_line(std::string_view bytes, const std::string& path,
               const std::function<void(std::string_view, int64_t)>& line) {
  constexpr const char* expected = "a tab-separated table";
  refuse_known_format(bytes, path, expected);
  const std::string_view text = without_byte_order_mark(bytes);
  const auto pass = [&](std::string_view content, int64_t number) {
    try {
      line(content, number);
    } catch (const UsageError&) {
      const size_t zero = number > 1 ? std::string_view::npos : bytes.substr(0, 4096).find('\0');
      if (zero == std::string_view::npos) throw;
      throw UsageError(path + ": is binary (byte " + as_text(int64_t(zero)) + " is 0); expected " +
                       expected);
    }
  };
  int64_t number = 0, passed = 0;
  for (size_t begin = 0, end; begin < text.size(); begin = end + 1) {
    end = std::min(text.find('\n', begin), text.size());
    std::string_view content = text.substr(begin, end - begin);
    if (content.ends_with('\r')) content.remove_suffix(1);
    ++number;
    if (content.empty()) continue;
    while (++passed < number) pass("", passed);  // the empty lines before this line
    pass(content, number);
  }
}

std::string csv_hint(std::string_view line, int64_t columns) {
  if (line.find('\t') != std::string_view::npos) return "";
  for (const auto& [separator, name] : {std::pair{',', "commas"}, std::pair{';', "semicolons"}})
    if (std::count(line.begin(), line.end(), separator) >= columns - 1)
      return std::string("; it looks like CSV, with ") + name + " in place of tabs";
  return "";
}

}  // namespace stretto::examples
