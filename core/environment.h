// Environment variables: strict parsing, errors instead of silent defaults.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

namespace stretto {

/// Returns the whole number in the environment variable `name`, or `fallback` if it is unset or
/// empty. Throws for any other text ("abc", "1.5", "1e9") and outside of [least, most].
int64_t environment_number(const char* name, int64_t least, int64_t most, int64_t fallback);

/// True if `entry` is in the environment variable `name`, a comma-separated list. Throws if an
/// entry of the list is not in `accepted`. Unset and empty mean an empty list.
bool environment_lists(const char* name, std::string_view entry,
                       std::span<const char* const> accepted);

}  // namespace stretto
