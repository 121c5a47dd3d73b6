// Characters in chat templates.
#pragma once

#include <algorithm>
#include <string>

#include "../../core/utf8.h"
#include "../tokenizers/text/unicode.h"

namespace stretto::nn::chat {

/// True if all bytes are below 128.
inline bool is_ascii(const std::string& text) {
  return std::all_of(text.begin(), text.end(), [](char c) { return uint8_t(c) < 128; });
}

/// True for the characters of Python's str.isspace().
inline bool is_space(uint32_t point) {
  return tokenizers::is_white_space(point) || (point >= 0x1C && point <= 0x1F);
}

/// Returns the position of the first character from `at` on that is not white space.
inline size_t skip_space(const std::string& text, size_t at) {
  for (size_t next = at; at < text.size() && is_space(next_code_point(text, next));) at = next;
  return at;
}

/// Returns the end of the text before `end` without its trailing white space.
inline size_t skip_space_backwards(const std::string& text, size_t end) {
  while (end > 0) {
    const size_t start = previous_start(text, end);
    size_t at = start;
    if (!is_space(next_code_point(text, at))) break;
    end = start;
  }
  return end;
}

}  // namespace stretto::nn::chat
