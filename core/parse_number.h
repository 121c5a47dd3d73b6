// Numbers that are read from text.
#pragma once

#include <optional>
#include <string_view>

namespace stretto {

/// Returns the number that all of `text` spells, whatever the locale, and nothing if it spells
/// none: an optional minus sign, then decimal digits with an optional point and exponent
/// ("-1.5e-3", "2.", ".5"), or "inf", "infinity" or "nan" in any case. Neither spaces nor a plus
/// sign are accepted, nor numbers that a double is too small for or rounds to 0. The result is the
/// nearest double, so what std::to_chars writes is read back as it was. (std::from_chars of a
/// double is missing in libc++ before version 20.)
std::optional<double> parse_double(std::string_view text);

}  // namespace stretto
