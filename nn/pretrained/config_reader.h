// Reads the fields of a config.json; for nn/pretrained/.
#pragma once

#include <initializer_list>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace stretto::nn::pretrained {

/// Returns the content of a file of at most 16 MiB.
std::string read_text(const std::string& path);

/// An object of JSON whose fields must all be used: each one is read, declared to have no effect
/// (ignore()), or finish() refuses it by name. A field that is null counts as absent. Errors are one
/// line, "[load_pretrained] FILE: …".
class ConfigReader {
 public:
  /// Parses an object. `source` names it in errors: the path of the file.
  ConfigReader(const std::string& source, const std::string& json);
  /// Reads a file of at most 16 MiB that is an object.
  static ConfigReader of_file(const std::string& path);
  /// Reads a file of at most 16 MiB that is a list of objects.
  static std::vector<ConfigReader> list_of_file(const std::string& path);
  ~ConfigReader();
  ConfigReader(ConfigReader&&) noexcept;
  ConfigReader& operator=(ConfigReader&&) noexcept;
  ConfigReader(const ConfigReader&) = delete;
  ConfigReader& operator=(const ConfigReader&) = delete;

  /// True if the field is present and not null. Does not count as reading it.
  bool has(const std::string& name) const;
  /// True if the field is present and a text. Does not count as reading it.
  bool is_text(const std::string& name) const;
  /// Returns an integer. Without a fallback, an absent field is an error.
  int64_t integer(const std::string& name, std::optional<int64_t> fallback = {});
  /// Returns an integer from 1 to `largest`, for sizes.
  int64_t size(const std::string& name, std::optional<int64_t> fallback = {},
               int64_t largest = 1 << 24);
  /// Returns a finite number.
  double number(const std::string& name, std::optional<double> fallback = {});
  /// Returns a truth value.
  bool flag(const std::string& name, std::optional<bool> fallback = {});
  /// Returns a text.
  std::string text(const std::string& name, std::optional<std::string> fallback = {});
  /// Returns an integer or the integers of a list; none if the field is absent.
  std::vector<int64_t> integers(const std::string& name);
  /// Returns the truth values of a list; none if the field is absent.
  std::vector<bool> flags(const std::string& name);
  /// Returns the texts of a list; none if the field is absent.
  std::vector<std::string> texts(const std::string& name);
  /// Returns the reader of an object; nothing if the field is absent.
  std::optional<ConfigReader> object(const std::string& name);

  /// Declares that fields have no effect on the model's results.
  void ignore(std::initializer_list<const char*> names);
  /// Throws unless a field is absent or has this value.
  void require(const std::string& name, bool value);
  /// Throws unless a field is absent or has this value.
  void require(const std::string& name, const char* value);
  /// Throws an error that names the first fields that were neither read nor ignored.
  void finish() const;
  /// Throws "[load_pretrained] FILE: TEXT".
  [[noreturn]] void refuse(const std::string& text) const;

 private:
  struct Fields;
  explicit ConfigReader(std::unique_ptr<Fields> fields);
  std::unique_ptr<Fields> fields_;
};

}  // namespace stretto::nn::pretrained
