// Texts for people: numbers with their nouns.
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

}  // namespace stretto::examples
