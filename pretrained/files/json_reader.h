// Reads the fields of JSON objects, so that none is ignored silently.
#pragma once

#include <initializer_list>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "../../nn/files/json.h"

namespace stretto::nn::files {

/// An object of JSON whose fields must all be used: each one is read, declared to have no effect
/// (ignore()), or finish() refuses it by name. A field that is null counts as absent. Errors are
/// one line, "[op] SOURCE: …".
class JsonReader {
 public:
  /// Reads an object that must outlive the reader. `source` names it in errors.
  JsonReader(const char* op, std::string source, const Json& object);
  /// Parses an object. `source` names it in errors: the path of the file.
  static JsonReader parse(const char* op, const std::string& source, const std::string& json);
  /// Reads a file of at most 16 MiB that is an object.
  static JsonReader of_file(const char* op, const std::string& path);
  /// Reads a file of at most 16 MiB that is a list of objects.
  static std::vector<JsonReader> list_of_file(const char* op, const std::string& path);

  /// True if the field is present and not null. Does not count as reading it.
  bool has(const std::string& name) const;
  /// True if the field is present, even as null. Does not count as reading it.
  bool is_present(const std::string& name) const;
  /// True if the field is present and a text. Does not count as reading it.
  bool is_text(const std::string& name) const;
  /// Returns a field of any kind; null if it is absent.
  const Json& value(const std::string& name);
  /// Returns an integer of low … high. Without a fallback, an absent field is an error.
  int64_t integer(const std::string& name, std::optional<int64_t> fallback = {},
                  int64_t low = -largest_integer, int64_t high = largest_integer);
  /// Returns an integer from 1 to `largest`, for sizes; the fallback must be one too.
  int64_t size(const std::string& name, std::optional<int64_t> fallback = {},
               int64_t largest = 1 << 24);
  /// Returns a finite number.
  double number(const std::string& name, std::optional<double> fallback = {});
  /// Returns a truth value.
  bool flag(const std::string& name, std::optional<bool> fallback = {});
  /// Returns a text.
  std::string text(const std::string& name, const std::optional<std::string>& fallback = {});
  /// Returns an integer or the integers of a list; none if the field is absent.
  std::vector<int64_t> integers(const std::string& name);
  /// Returns the finite numbers of a list; none if the field is absent.
  std::vector<double> numbers(const std::string& name);
  /// Returns the truth values of a list; none if the field is absent.
  std::vector<bool> flags(const std::string& name);
  /// Returns the texts of a list; none if the field is absent.
  std::vector<std::string> texts(const std::string& name);
  /// Returns the values of a list; none if the field is absent.
  const std::vector<Json>& list(const std::string& name);
  /// Returns the reader of an object; nothing if the field is absent.
  std::optional<JsonReader> object(const std::string& name);
  /// Returns the readers of the objects of a list; none if the field is absent.
  std::vector<JsonReader> objects(const std::string& name);

  /// Declares that fields have no effect on results.
  void ignore(std::initializer_list<const char*> names);
  /// Throws unless a field is absent or has this value.
  void require(const std::string& name, bool value);
  /// Throws unless a field is absent or has this value.
  void require(const std::string& name, const char* value);
  /// Throws an error that names the first fields that were neither read nor ignored.
  void finish() const;
  /// Throws "[op] SOURCE: TEXT".
  [[noreturn]] void refuse(const std::string& text) const;

 private:
  static constexpr int64_t largest_integer = 1'000'000'000'000'000;

  const Json* find(const std::string& name);
  [[noreturn]] void refuse_value(const std::string& name, const std::string& expected) const;

  // Returns the value of a field, `fallback` if it is absent; throws without one.
  template <class T, class Read>
  T read(const std::string& name, const std::optional<T>& fallback, const Read& read);

  const char* op_;
  std::string source_;
  std::shared_ptr<const Json> root_;  // if the reader owns the text
  const Json* object_;
  std::set<std::string> used_;
};

}  // namespace stretto::nn::files
