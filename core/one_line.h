// Text from files, made fit for one line of an error message.
#pragma once

#include <string>

namespace stretto {

/// Returns at most `limit` bytes of `text`, with "?" for control characters and "…" if cut.
inline std::string one_line(const std::string& text, size_t limit = 200) {
  std::string shown;
  for (const unsigned char c : text.substr(0, limit)) shown += c < ' ' || c == 127 ? '?' : char(c);
  return text.size() > limit ? shown + "…" : shown;
}

/// Returns at most 80 bytes of `text` in double quotes.
inline std::string in_quotes(const std::string& text) { return '"' + one_line(text, 80) + '"'; }

}  // namespace stretto
