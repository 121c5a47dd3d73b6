#include "pretrained/tokenizers/text/unicode.h"

#include <utf8proc.h>

#include <array>
#include <cstdlib>
#include <new>
#include <span>
#include <vector>

#include "core/utf8.h"
#include "pretrained/tokenizers/text/unicode_differences.h"

namespace stretto::nn::tokenizers {
namespace {

constexpr uint32_t code_points = 0x110000;

uint8_t bit(Property property) { return uint8_t(property); }

uint8_t properties_by_category(uint32_t point) {
  switch (utf8proc_category(int32_t(point))) {
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_NL:
      return bit(Property::numeric) | bit(Property::word);
    case UTF8PROC_CATEGORY_NO:
      return bit(Property::numeric);
    case UTF8PROC_CATEGORY_PC:
      return bit(Property::punctuation) | bit(Property::word);
    case UTF8PROC_CATEGORY_PD:
    case UTF8PROC_CATEGORY_PS:
    case UTF8PROC_CATEGORY_PE:
    case UTF8PROC_CATEGORY_PI:
    case UTF8PROC_CATEGORY_PF:
    case UTF8PROC_CATEGORY_PO:
      return bit(Property::punctuation);
    case UTF8PROC_CATEGORY_CC:
      return point == '\t' || point == '\n' || point == '\r' ? 0 : bit(Property::control);
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CO:
      return bit(Property::control);
    case UTF8PROC_CATEGORY_MN:
      return bit(Property::accent) | bit(Property::mark) | bit(Property::word);
    case UTF8PROC_CATEGORY_MC:
    case UTF8PROC_CATEGORY_ME:
      return bit(Property::mark) | bit(Property::word);
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LL:
    case UTF8PROC_CATEGORY_LT:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO:
      return bit(Property::word);
    default:
      return 0;
  }
}

std::vector<uint8_t> property_table() {
  std::vector<uint8_t> table(code_points);
  for (uint32_t point = 0; point < code_points; ++point) {
    table[point] = properties_by_category(point);
    if (!utf8proc_grapheme_break('a', int32_t(point))) table[point] |= bit(Property::extend);
  }
  for (const char c : std::string_view("$+<=>^`|~"))
    table[uint8_t(c)] |= bit(Property::punctuation);
  const UnicodeDifferences d = unicode_differences();
  const auto toggle = [&](std::span<const Range> ranges, Property property) {
    for (const Range& range : ranges)
      for (uint32_t point = range.first; point <= range.last; ++point)
        table[point] ^= bit(property);
  };
  toggle(d.numeric, Property::numeric);
  toggle(d.punctuation, Property::punctuation);
  toggle(d.control, Property::control);
  toggle(d.accent, Property::accent);
  toggle(d.mark, Property::mark);
  toggle(d.word, Property::word);
  toggle(d.extend, Property::extend);
  toggle(d.opaque, Property::opaque);
  return table;
}

// Appends a text of code points that are not opaque.
void append_normalized(std::string& to, std::string_view text, utf8proc_option_t options,
                       std::vector<int32_t>& points) {
  if (text.empty()) return;
  const auto* bytes = reinterpret_cast<const utf8proc_uint8_t*>(text.data());
  const auto size = utf8proc_ssize_t(text.size());
  points.resize(text.size() + 32);
  auto n = utf8proc_decompose(bytes, size, points.data(), utf8proc_ssize_t(points.size()), options);
  if (n > utf8proc_ssize_t(points.size())) {
    points.resize(size_t(n));
    n = utf8proc_decompose(bytes, size, points.data(), n, options);
  }
  if (n < 0) throw std::bad_alloc();
  n = utf8proc_normalize_utf32(points.data(), n, options);
  for (utf8proc_ssize_t i = 0; i < n; ++i) append_utf8(to, uint32_t(points[size_t(i)]));
}

}  // namespace

bool has(uint32_t point, Property property) {
  static const std::vector<uint8_t> table = property_table();
  return (table[point] & bit(property)) != 0;
}

void append_lower(std::string& to, uint32_t point) {
  if (point < 0x80) {
    to += char(point >= 'A' && point <= 'Z' ? point + 32 : point);
    return;
  }
  if (point == 0x130) {  // the only character with two characters in lower case
    to += "i\xCC\x87";
    return;
  }
  for (const Mapped& m : unicode_differences().lower)
    if (point >= m.first && point <= m.last) return append_utf8(to, m.to + (point - m.first));
  append_utf8(to, uint32_t(utf8proc_tolower(int32_t(point))));
}

std::string normalized(std::string_view text, Form form) {
  int options = UTF8PROC_STABLE;
  options |= form == Form::nfc || form == Form::nfkc ? UTF8PROC_COMPOSE : UTF8PROC_DECOMPOSE;
  if (form == Form::nfkc || form == Form::nfkd) options |= UTF8PROC_COMPAT;
  std::string result;
  result.reserve(text.size());
  std::vector<int32_t> points;
  for (size_t at = 0; at < text.size();) {
    // ASCII is normalized, and combines at most with the character behind it.
    size_t end = at;
    while (end < text.size() && uint8_t(text[end]) < 0x80) ++end;
    if (end == text.size()) {
      result.append(text, at, end - at);
      break;
    }
    const size_t begin = end > at ? end - 1 : end;
    result.append(text, at, begin - at);
    size_t from = begin;
    while (end < text.size() && uint8_t(text[end]) >= 0x80) {
      const size_t start = end;
      if (!has(next_code_point(text, end), Property::opaque)) continue;
      append_normalized(result, text.substr(from, start - from), utf8proc_option_t(options),
                        points);
      result.append(text, start, end - start);
      from = end;
    }
    append_normalized(result, text.substr(from, end - from), utf8proc_option_t(options), points);
    at = end;
  }
  return result;
}

size_t end_of_short_cluster(std::string_view text, size_t at) {
  const size_t begin = at;
  const uint32_t base = next_code_point(text, at);
  if (base == '\r') return at < text.size() && text[at] == '\n' ? at + 1 : at;
  if (base < ' ' || at == text.size() || uint8_t(text[at]) < 0x80) return at;
  // Controls and formats end a cluster.
  if (utf8proc_grapheme_break(int32_t(base), 0x301) && !has(base, Property::extend)) return at;
  while (at < text.size() && at - begin < 6) {
    size_t next = at;
    if (!has(next_code_point(text, next), Property::extend)) break;
    at = next;
  }
  return at;
}

}  // namespace stretto::nn::tokenizers
