#include "examples/chorales/chorale.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>
#include <stdexcept>
#include <string_view>
#include <system_error>

#include "core/available_memory.h"
#include "examples/common/error.h"
#include "examples/common/file.h"
#include "examples/common/text_file.h"

namespace stretto::examples {
namespace {

using nlohmann::json;
namespace fs = std::filesystem;

constexpr const char* expected_voices = "4 (soprano, alto, tenor, bass; -1 = silent)";
constexpr const char* expected_pitches = "a MIDI note number from 0 to 127, or -1 for silence";

[[noreturn]] void fail(const std::string& path, const std::string& what) {
  throw UsageError(path + ": " + what);
}

std::string read_text(const std::string& path) {
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  if (status.type() == fs::file_type::not_found) fail(path, "no such file");
  if (error) fail(path, "cannot read: " + error.message());
  if (status.type() == fs::file_type::directory)
    fail(path, "is a directory; expected a JSON file of chorales");
  if (status.type() != fs::file_type::regular) fail(path, "is not a regular file");
  constexpr double memory_per_byte = 12;  // of the parsed JSON, for each byte of the file
  const auto size = double(fs::file_size(path, error));
  if (!error && size > 1e8 && memory_per_byte * size > double(available_memory()))
    fail(path, "is too large for the free memory");
  std::string text = read_whole_file(path);
  refuse_known_format(text, path, "a JSON file of chorales");
  if (text.find_first_not_of(" \t\r\n") == std::string::npos) fail(path, "is empty");
  return text;
}

/// Returns a few characters of `text` from `begin`, for an error message.
std::string excerpt(std::string_view text, size_t begin) {
  std::string shown;
  for (const char c : text.substr(begin, 16)) shown += c >= ' ' && c <= '~' ? c : '?';
  return shown;
}

/// Rejects an object that contains a key twice; the parser would take the last value.
class KeyCheck {
 public:
  explicit KeyCheck(const std::string& path) : path_(path) {}

  bool operator()(int, json::parse_event_t event, const json& parsed) {
    if (event == json::parse_event_t::object_start) open_.emplace_back();
    if (event == json::parse_event_t::object_end) open_.pop_back();
    if (event == json::parse_event_t::key) {
      const auto& name = parsed.get_ref<const std::string&>();
      if (!open_.back().insert(name).second)
        fail(path_, "has the key \"" + excerpt(name, 0) + "\" twice");
    }
    return true;
  }

 private:
  const std::string& path_;
  std::vector<std::set<std::string>> open_;  // the keys of each object that has not ended
};

[[noreturn]] void malformed(const std::string& path, std::string_view text, size_t offset) {
  const auto line = std::count(text.begin(), text.begin() + int64_t(offset), '\n') + 1;
  fail(path, "malformed JSON at byte " + std::to_string(offset + 1) + " (line " +
                 std::to_string(line) + "), near \"" + excerpt(text, offset < 6 ? 0 : offset - 6) +
                 "\"");
}

json parse(const std::string& path, const std::string& text) {
  // JSON has no zero bytes, but the parser would treat one as the end of the text.
  if (const size_t zero = text.find('\0'); zero != std::string::npos) malformed(path, text, zero);
  try {
    return json::parse(text, KeyCheck(path));
  } catch (const json::parse_error& error) {
    // The parser counts bytes from 1. For an error at the end of the text it counts one byte more.
    if (error.byte > text.size()) {
      fail(path, "the JSON text ends too early, after byte " + std::to_string(text.size()) +
                     "; the file may be truncated");
    }
    malformed(path, text, std::max<size_t>(error.byte, 1) - 1);
  } catch (const json::exception&) {  // a number that no double can hold
    fail(path, "the JSON text has a number out of range");
  }
}

std::string type_of(const json& value) { return std::string("got ") + value.type_name(); }

std::string place_of(const std::string& split, size_t chorale) {
  return split + "[" + std::to_string(chorale) + "]";
}

/// Returns the note number in `value`. `place` is evaluated only for a message.
template <class Place>
int to_pitch(const std::string& path, const json& value, const Place& place) {
  if (!value.is_number())
    fail(path, place() + " is not a number (" + type_of(value) + "); expected " + expected_pitches);
  const double number = value.get<double>();
  if (number != std::floor(number))
    fail(path,
         place() + " is " + value.dump() + ", not a whole number; expected " + expected_pitches);
  if (number < -1 || number > 127)
    fail(path, place() + " is " + value.dump() + "; expected " + expected_pitches);
  return int(number);
}

Chorale to_chorale(const std::string& path, const json& value, const std::string& place) {
  if (!value.is_array()) fail(path, place + " is not a list of steps (" + type_of(value) + ")");
  if (value.empty()) fail(path, place + " has no steps");
  Chorale chorale;
  chorale.steps.resize(value.size());
  for (size_t i = 0; i < value.size(); ++i) {
    const json& step = value[i];
    const auto step_place = [&] { return place + " step " + std::to_string(i); };
    if (!step.is_array())
      fail(path,
           step_place() + " is not a list (" + type_of(step) + "); expected " + expected_voices);
    if (step.size() != 4) {
      fail(path, step_place() + " has " + std::to_string(step.size()) +
                     (step.size() == 1 ? " number" : " numbers") + "; expected " + expected_voices);
    }
    for (size_t voice = 0; voice < 4; ++voice) {
      chorale.steps[i][voice] = to_pitch(
          path, step[voice], [&] { return step_place() + " number " + std::to_string(voice + 1); });
    }
  }
  return chorale;
}

std::vector<Chorale> to_split(const std::string& path, const json& root, const std::string& key) {
  const auto found = root.find(key);
  if (found == root.end())
    fail(path, "has no key \"" + key + "\"; expected \"train\", \"valid\" and \"test\"");
  if (!found->is_array())
    fail(path, "\"" + key + "\" is not a list of chorales (" + type_of(*found) + ")");
  if (found->empty()) fail(path, "\"" + key + "\" has no chorales");
  std::vector<Chorale> split;
  split.reserve(found->size());
  for (size_t i = 0; i < found->size(); ++i)
    split.push_back(to_chorale(path, (*found)[i], place_of(key, i)));
  return split;
}

void append_split(std::string& text, const std::string& key, const std::vector<Chorale>& split) {
  if (split.empty()) throw std::invalid_argument("cannot save chorales: " + key + " is empty");
  text += "\"" + key + "\": [";
  for (size_t i = 0; i < split.size(); ++i) {
    if (split[i].steps.empty())
      throw std::invalid_argument("cannot save chorales: " + place_of(key, i) + " has no steps");
    text += i == 0 ? "\n[" : ",\n[";
    const char* separator = "[";
    for (const std::array<int, 4>& step : split[i].steps) {
      for (const int pitch : step) {
        if (pitch < -1 || pitch > 127) {
          throw std::invalid_argument("cannot save chorales: " + place_of(key, i) + " has pitch " +
                                      std::to_string(pitch));
        }
        text += separator + std::to_string(pitch);
        separator = ", ";
      }
      separator = "], [";
    }
    text += "]]";
  }
  text += "]";
}

}  // namespace

ChoraleSet load_chorales(const std::string& path) {
  const json root = parse(path, read_text(path));
  if (!root.is_object()) {
    fail(path, "is not a JSON object (" + type_of(root) +
                   "); expected one with \"train\", \"valid\" and \"test\"");
  }
  return {to_split(path, root, "train"), to_split(path, root, "valid"),
          to_split(path, root, "test")};
}

void save_chorales(const std::string& path, const ChoraleSet& set) {
  std::string text = "{";
  append_split(text, "train", set.train);
  text += ",\n";
  append_split(text, "valid", set.valid);
  text += ",\n";
  append_split(text, "test", set.test);
  text += "}\n";
  write_file_atomically(path, text);
}

}  // namespace stretto::examples
