#include "pretrained/chat/chat_template_text.h"

#include <algorithm>

namespace stretto::nn::chat {

bool is_ascii(const std::string& text) {
  return std::all_of(text.begin(), text.end(),
                     [](char c) { return static_cast<unsigned char>(c) < 128; });
}

bool is_space(char32_t code) {
  return (code >= 9 && code <= 13) || (code >= 0x1C && code <= 0x20) || code == 0x85 ||
         code == 0xA0 || code == 0x1680 || (code >= 0x2000 && code <= 0x200A) || code == 0x2028 ||
         code == 0x2029 || code == 0x202F || code == 0x205F || code == 0x3000;
}

size_t skip_space(const std::string& text, size_t at) {
  while (at < text.size()) {
    size_t next = at;
    if (!is_space(next_code_point(text, next))) break;
    at = next;
  }
  return at;
}

size_t skip_space_backwards(const std::string& text, size_t end) {
  while (end > 0) {
    size_t at = previous_start(text, end);
    const size_t start = at;
    if (!is_space(next_code_point(text, at))) break;
    end = start;
  }
  return end;
}

}  // namespace stretto::nn::chat
