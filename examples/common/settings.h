// Settings of a run: named values that are options on the command line (options.h) and metadata in
// its checkpoint. Their checks name the rejected option.
//
// A struct of settings lists its members once, in the order of --help:
//
//     struct Settings {
//       int64_t layers = 4;
//       template <class S, class F>
//       static void each(S& s, F&& f) {
//         f("layers", s.layers, "Number of layers", between(1, 1000));
//       }
//       void check() const { check_each(*this); }
//     };
#pragma once

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/parse_number.h"
#include "examples/common/error.h"
#include "examples/common/text_file.h"
#include "nn/files/safetensors.h"
#include "nn/training/metrics.h"

namespace stretto::examples {

inline void require(bool condition, const std::string& message) {
  if (!condition) throw UsageError(message);
}

inline std::string as_text(const std::string& value) { return value; }
inline std::string as_text(int64_t value) { return std::to_string(value); }
inline std::string as_text(uint64_t value) { return std::to_string(value); }
inline std::string as_text(bool value) { return value ? "1" : "0"; }
inline std::string as_text(double value) { return nn::exact_text(value); }

/// Parses the whole of `text` as a value; false if it is anything else.
inline bool read_text(const std::string& text, std::string& value) {
  value = text;
  return true;
}
inline bool read_text(const std::string& text, bool& value) {
  value = text == "1";
  return value || text == "0";
}
inline bool read_text(const std::string& text, double& value) {
  const std::optional<double> number = parse_double(text);
  value = number.value_or(value);
  return number.has_value();
}
template <class T>
bool read_text(const std::string& text, T& value) {
  const char* end = text.data() + text.size();
  const auto result = std::from_chars(text.data(), end, value);
  return result.ec == std::errc() && result.ptr == end;
}

/// Joins names with commas: "conv, none, sine".
inline std::string joined(const std::vector<std::string>& names) {
  std::string all;
  for (const std::string& name : names) all += (all.empty() ? "" : ", ") + name;
  return all;
}
/// Returns the option of a setting: "--d-model" for "d_model".
inline std::string option_of(std::string name) {
  std::replace(name.begin(), name.end(), '_', '-');
  return "--" + name;
}

/// Throws UsageError "--norm none: accepted values are post, pre".
inline void require_name(const std::string& option, const std::string& name,
                         const std::vector<std::string>& accepted) {
  require(std::count(accepted.begin(), accepted.end(), name) == 1,
          option + " " + name + ": accepted values are " + joined(accepted));
}
template <class T>
std::vector<std::string> names_of(const std::map<std::string, T>& table) {
  std::vector<std::string> names;
  for (const auto& entry : table) names.push_back(entry.first);
  return names;
}
/// Returns the value of a name in a table. Throws UsageError as require_name() does.
template <class T>
const T& find_name(const std::map<std::string, T>& table, const std::string& option,
                   const std::string& name) {
  require_name(option, name, names_of(table));
  return table.at(name);
}

/// Parses a list of integers, "20000,40000". Throws UsageError, naming `option`.
inline std::vector<int64_t> read_list(const std::string& option, const std::string& text) {
  std::vector<int64_t> numbers;
  if (text.empty()) return numbers;
  for (const std::string_view part : fields_of(text, ',')) {
    int64_t number = 0;
    require(read_text(std::string(part), number),
            option + " " + text + ": must be whole numbers with commas between them");
    numbers.push_back(number);
  }
  return numbers;
}

/// Throws UsageError "--batch 0: accepted values are 1 to 64".
inline void require_range(const std::string& option, int64_t value, int64_t least, int64_t most) {
  require(least <= value && value <= most, option + " " + as_text(value) +
                                               ": accepted values are " + as_text(least) + " to " +
                                               as_text(most));
}
/// Throws UsageError "--max-grad-norm nan: must be above 0".
inline void require_number(const std::string& option, double value, bool accepted,
                           const std::string& what) {
  require(accepted, option + " " + as_text(value) + ": must be " + what);
}
inline void require_positive(const std::string& option, double value) {
  require_number(option, value, value > 0 && std::isfinite(value), "a number above 0");
}
inline void require_not_negative(const std::string& option, double value) {
  require_number(option, value, value >= 0 && std::isfinite(value), "a number of at least 0");
}
inline void require_above_zero(const std::string& option, double value) {
  require_number(option, value, value > 0, "above 0");
}
inline void require_share(const std::string& option, double value) {
  require_number(option, value, value >= 0 && value < 1, "at least 0 and below 1");
}
inline void require_fraction(const std::string& option, double value) {
  require_number(option, value, value > 0 && value < 1, "above 0 and below 1");
}
inline void require_top_p(const std::string& option, double value) {
  require_number(option, value, value > 0 && value <= 1, "above 0 and at most 1");
}

// Checks of a setting or an option, called with the option and its value. The require_… functions
// above with these two parameters are checks, too.
inline constexpr auto any_value = [](const std::string&, const auto&) {};
/// Checks as require_range does.
inline auto between(int64_t least, int64_t most) {
  return
      [=](const std::string& option, int64_t value) { require_range(option, value, least, most); };
}
/// Checks as require_name does.
inline auto one_of(std::vector<std::string> accepted) {
  return [accepted = std::move(accepted)](const std::string& option, const std::string& name) {
    require_name(option, name, accepted);
  };
}
/// Checks each number of a list (read_list) as require_range does.
inline auto each_between(int64_t least, int64_t most) {
  return [=](const std::string& option, const std::string& list) {
    for (const int64_t value : read_list(option, list)) require_range(option, value, least, most);
  };
}
/// Accepts the names for which `find` does not throw UsageError.
template <class Find>
auto known_to(Find find) {
  return [=](const std::string&, const std::string& name) { find(name); };
}

/// Checks each setting by itself.
template <class Settings>
void check_each(const Settings& settings) {
  Settings::each(settings, [](const char* name, const auto& value, const std::string&,
                              const auto& check) { check(option_of(name), value); });
}

template <class Settings>
nn::Metadata settings_to_metadata(const Settings& settings) {
  nn::Metadata metadata;
  Settings::each(settings, [&](const char* name, const auto& value, const auto&...) {
    metadata[name] = as_text(value);
  });
  return metadata;
}

/// Returns the checked settings from the metadata of a checkpoint of `program`. Throws UsageError,
/// naming `path`, if a setting is missing or malformed.
template <class Settings>
Settings settings_from_metadata(const nn::Metadata& metadata, const std::string& path,
                                const std::string& program) {
  Settings s;
  Settings::each(s, [&](const char* name, auto& value, const auto&...) {
    const auto it = metadata.find(name);
    require(it != metadata.end() && read_text(it->second, value),
            path + ": not a checkpoint of " + program + " (its setting \"" + name +
                "\" is missing or malformed)");
  });
  try {
    s.check();
  } catch (const UsageError& e) {
    throw UsageError(path + ": " + e.what());
  }
  return s;
}

}  // namespace stretto::examples
