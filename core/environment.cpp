#include "core/environment.h"

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <string>

#include "core/error.h"

namespace stretto {
namespace {

std::string_view text_of(const char* name) {
  const char* const text = std::getenv(name);
  return text ? text : "";
}

}  // namespace

int64_t environment_number(const char* name, int64_t least, int64_t most, int64_t fallback) {
  const std::string_view text = text_of(name);
  if (text.empty()) return fallback;
  const char* const end = text.data() + text.size();
  int64_t value = 0;
  const auto read = std::from_chars(text.data(), end, value);
  check(read.ec == std::errc() && read.ptr == end && least <= value && value <= most, "environment",
        name, " is \"", std::string(text), "\"; it must be a whole number from ", least, " to ",
        most, ", or not be set");
  return value;
}

bool environment_lists(const char* name, std::string_view entry,
                       std::span<const char* const> accepted) {
  const std::string_view all = text_of(name);
  bool found = false;
  for (size_t begin = 0; begin < all.size();) {
    const size_t end = std::min(all.find(',', begin), all.size());
    const std::string_view listed = all.substr(begin, end - begin);
    if (std::find(accepted.begin(), accepted.end(), listed) == accepted.end()) {
      std::string names;
      for (const char* const known : accepted)
        names += (names.empty() ? "" : ", ") + std::string(known);
      fail("environment", name, " contains \"", std::string(listed),
           "\"; accepted, separated by commas: ", names);
    }
    found = found || listed == entry;
    begin = end + 1;
  }
  return found;
}

}  // namespace stretto
