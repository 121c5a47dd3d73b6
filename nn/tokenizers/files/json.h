// JSON values of tokenizer files.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace stretto::nn::tokenizers {

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

  // Defined where JsonMember is complete.
  Json();
  Json(const Json&);
  Json(Json&&) noexcept;
  Json& operator=(const Json&);
  Json& operator=(Json&&) noexcept;
  ~Json();

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

/// A string value.
Json json_string(std::string text);

/// Returns a value from JSON text. Throws Error "[tokenizer] name: …".
Json parse_json(std::string_view text, const std::string& name);

/// Returns `value` as JSON text in one line.
std::string json_text(const Json& value);

/// Returns a string as JSON, in quotes.
std::string quoted_json(std::string_view text);

/// Reads fields of an object; every field must be read, so that none is ignored silently. Errors
/// are "[tokenizer] name: where: …".
class Fields {
 public:
  /// `where` names the object in errors, such as "decoder Replace".
  Fields(const Json& object, std::string name, std::string where);

  /// Returns a field; null if there is none.
  const Json& get(std::string_view key);
  /// Returns a boolean field; `fallback` if it is missing or null.
  bool boolean(std::string_view key, bool fallback);
  /// Returns an integer of low … high; `fallback` if it is missing or null.
  int64_t integer(std::string_view key, int64_t fallback, int64_t low, int64_t high);
  /// Returns a string; must be present.
  std::string string(std::string_view key);
  /// Returns a string; `fallback` if it is missing or null.
  std::string string(std::string_view key, const std::string& fallback);
  /// Marks fields as read whose values change no ids.
  void ignore(std::initializer_list<std::string_view> keys);
  /// Throws if a field was not read.
  void finish() const;
  /// Throws an Error about this object.
  [[noreturn]] void bad(const std::string& message) const;

 private:
  const Json& object_;
  std::string name_, where_;
  std::vector<std::string_view> read_;
};

}  // namespace stretto::nn::tokenizers
