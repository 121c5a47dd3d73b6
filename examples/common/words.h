// Texts for people and pages: numbers with their nouns, and HTML escapes.
#pragma once

#include <cstdint>
#include <string>

namespace stretto::examples {

/// Returns the number with a comma between groups of three digits: "955,904".
inline std::string grouped(int64_t number) {
  std::string digits = std::to_string(number);
  const size_t sign = number < 0 ? 1 : 0;
  for (size_t at = digits.size(); at > sign + 3; at -= 3) digits.insert(at - 3, ",");
  return digits;
}

/// Returns the number with its noun in singular or plural: "1 thread", "955,904 parameters".
inline std::string counted(int64_t number, const std::string& noun) {
  return grouped(number) + " " + noun + (number == 1 ? "" : "s");
}

/// Returns `text` with <, > and & escaped for HTML and SVG content (not for attributes).
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
