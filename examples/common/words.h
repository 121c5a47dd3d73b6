// Texts as a reader or a file expects them: numbers of things, and what a page shows.
#pragma once

#include <cstdint>
#include <string>

namespace stretto::examples {

/// The number with a comma after each three digits: "955,904".
inline std::string grouped(int64_t number) {
  std::string digits = std::to_string(number);
  const size_t sign = number < 0 ? 1 : 0;
  for (size_t at = digits.size(); at > sign + 3; at -= 3) digits.insert(at - 3, ",");
  return digits;
}

/// The number with its noun in the singular or the plural: "1 thread", "955,904 parameters".
inline std::string counted(int64_t number, const std::string& noun) {
  return grouped(number) + " " + noun + (number == 1 ? "" : "s");
}

/// The text as HTML and SVG show it: <, > and & by their names. For content, not for attributes.
inline std::string escaped(const std::string& text) {
  std::string safe;
  for (const char c : text) {
    if (c == '<')
      safe += "&lt;";
    else if (c == '>')
      safe += "&gt;";
    else if (c == '&')
      safe += "&amp;";
    else
      safe += c;
  }
  return safe;
}

}  // namespace stretto::examples
