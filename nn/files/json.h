// JSON values: headers and indexes of safetensors, configurations, tokenizers.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace stretto::nn::files {

struct JsonMember;

/// A JSON value. Objects preserve the order of their members.
struct Json {
  enum class Kind { null, boolean, integer, number, string, list, object };

  Kind kind = Kind::null;
  bool truth = false;
  int64_t integer = 0;
  double number = 0;  ///< Also of integers.
  std::string text;
  std::vector<Json> items;
  std::vector<JsonMember> members;

  /// Returns a member of an object; null if there is none.
  const Json& operator[](std::string_view key) const;
  bool is_null() const { return kind == Kind::null; }
  bool is_object() const { return kind == Kind::object; }
  bool is_list() const { return kind == Kind::list; }
  bool is_string() const { return kind == Kind::string; }
};

/// A member of an object: its name and value.
struct JsonMember {
  std::string first;
  Json second;
};

/// Returns a value from JSON text. Throws Error "[op] name: …" if it is not JSON, is nested more
/// than 64 levels deep, has more than 4 million values, or a field twice.
Json parse_json(const char* op, std::string_view text, const std::string& name);

/// Returns what a value is, for error texts: "a number", "an object", "null", …
const char* kind_of(const Json& value);

/// Returns `value` as JSON text in one line.
std::string json_text(const Json& value);

/// Returns a string as JSON, in quotes.
std::string quoted_json(std::string_view text);

}  // namespace stretto::nn::files
