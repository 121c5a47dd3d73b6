#include "core/parse_number.h"

#include <locale.h>

#include <cerrno>
#include <cmath>
#include <cstdlib>
#include <string>

namespace stretto {
namespace {

bool equals_in_any_case(std::string_view text, std::string_view lower_case) {
  if (text.size() != lower_case.size()) return false;
  for (size_t i = 0; i < text.size(); ++i)
    if ((text[i] | 0x20) != lower_case[i]) return false;
  return true;
}

// Removes the decimal digits at the beginning of `text`; true if there are any.
bool skip_digits(std::string_view& text) {
  const size_t size = text.size();
  while (!text.empty() && text.front() >= '0' && text.front() <= '9') text.remove_prefix(1);
  return text.size() < size;
}

bool is_decimal(std::string_view text) {
  bool digits = skip_digits(text);
  if (text.starts_with('.')) {
    text.remove_prefix(1);
    digits |= skip_digits(text);
  }
  if (!digits) return false;
  if (text.starts_with('e') || text.starts_with('E')) {
    text.remove_prefix(1);
    if (text.starts_with('-') || text.starts_with('+')) text.remove_prefix(1);
    if (!skip_digits(text)) return false;
  }
  return text.empty();
}

}  // namespace

std::optional<double> parse_double(std::string_view text) {
  const std::string_view magnitude = text.starts_with('-') ? text.substr(1) : text;
  if (!is_decimal(magnitude) && !equals_in_any_case(magnitude, "inf") &&
      !equals_in_any_case(magnitude, "infinity") && !equals_in_any_case(magnitude, "nan"))
    return std::nullopt;

  static const locale_t c_locale = newlocale(LC_ALL_MASK, "C", nullptr);  // decimal point "."
  errno = 0;
  const double value = strtod_l(std::string(text).c_str(), nullptr, c_locale);
  if (errno == ERANGE && (std::isinf(value) || value == 0)) return std::nullopt;
  return value;
}

}  // namespace stretto
