// Parsing of numbers.
#pragma once

#include <optional>
#include <string_view>

namespace stretto {

/// Parses all of `text` as a number; returns nothing if it is not one. The program's locale has no
/// influence. Accepted: an optional minus sign, then decimal digits with an optional point and
/// exponent ("-1.5e-3", "2.", ".5"), or "inf", "infinity" or "nan" in any case. Rejected: spaces, a
/// plus sign, and nonzero numbers that overflow or round to 0. The result is the nearest double, so
/// the output of std::to_chars is read back exactly. (libc++ has std::from_chars of a double only
/// from version 20 on.)
std::optional<double> parse_double(std::string_view text);

}  // namespace stretto
