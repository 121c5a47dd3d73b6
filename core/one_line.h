// Texts that come from files, fit for one line of a message.
#pragma once

#include <string>

namespace stretto {

/// Without control characters, and at most `limit` bytes of it.
inline std::string one_line(const std::string& text, size_t limit = 200) {
  std::string shown;
  for (const char c : text.substr(0, limit)) shown += (c >= 0 && c < ' ') || c == 127 ? '?' : c;
  return text.size() > limit ? shown + "…" : shown;
}

inline std::string in_quotes(const std::string& text) { return '"' + one_line(text, 80) + '"'; }

}  // namespace stretto
